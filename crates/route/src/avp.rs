//! Attribute-value pairs: what `$avp(name)` reads and writes. A transaction owns one store.
//!
//! Each name has a stack of values. Assigning pushes; assigning null pops. `[*]` stands for all of them.

use crate::limits::{AVP_BYTES_MAX, AVP_VALUES_MAX};
use crate::machine::{Index, Sink};
use crate::value::ValueRef;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A store was full: the value was not kept. The limits are [`AVP_VALUES_MAX`] and [`AVP_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AvpsFull;

#[derive(Debug, Clone)]
enum Kept {
    Int(i64),
    Str(Box<[u8]>),
}

#[derive(Debug, Clone)]
struct Avp {
    name: Box<[u8]>,
    value: Kept,
}

impl Avp {
    fn cost(&self) -> usize {
        self.name.len() + if let Kept::Str(bytes) = &self.value { bytes.len() } else { 0 }
    }
}

/// A bounded store of attribute-value pairs.
///
/// An empty store owns no memory. Names compare byte for byte; `s:x` is the same name as `x`.
#[derive(Debug, Clone, Default)]
pub struct Avps {
    /// Oldest first: the last one of a name is its index 0.
    values: Vec<Avp>,
    bytes: usize,
}

/// The name without the `s:` that the old notation writes before names that are strings.
fn plain(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"s:").unwrap_or(name)
}

impl Avps {
    /// A store with nothing in it.
    #[must_use]
    pub const fn new() -> Self {
        Self { values: Vec::new(), bytes: 0 }
    }

    /// How many values the store holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether the store holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.values.clear();
        self.bytes = 0;
    }

    /// Where the value at `index` of `name` is: 0 is the newest, -1 the oldest.
    fn place(&self, name: &[u8], index: i32) -> Option<usize> {
        let name = plain(name);
        let same = |(at, avp): (usize, &Avp)| (*avp.name == *name).then_some(at);
        let skip = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
        if index < 0 {
            self.values.iter().enumerate().filter_map(same).nth(skip - 1)
        } else {
            self.values.iter().enumerate().rev().filter_map(same).nth(skip)
        }
    }

    /// The value at `index` of `name`: 0 is the newest, -1 the oldest.
    #[must_use]
    pub fn get(&self, name: &[u8], index: i32) -> ValueRef<'_> {
        match self.place(name, index).and_then(|at| self.values.get(at)).map(|avp| &avp.value) {
            Some(Kept::Int(value)) => ValueRef::Int(*value),
            Some(Kept::Str(bytes)) => ValueRef::Str(bytes),
            None => ValueRef::Null,
        }
    }

    /// Reads what `$(avp(name)[index])` stands for into `out`; `[*]` gives all values with commas between.
    pub fn read(&self, name: &[u8], index: Index, out: &mut Sink<'_>) {
        match index {
            Index::None => out.value(self.get(name, 0)),
            Index::At(index) => out.value(self.get(name, index)),
            Index::All => {
                let mut at = 0;
                loop {
                    let value = self.get(name, at);
                    if value.is_null() {
                        break;
                    }
                    if at > 0 {
                        out.push(b",");
                    }
                    match value {
                        ValueRef::Int(int) => out.push(crate::value::Decimal::new(int).as_bytes()),
                        ValueRef::Str(bytes) => out.push(bytes),
                        ValueRef::Null => {}
                    }
                    at += 1;
                }
            }
        }
    }

    /// Assigns: without an index the value is pushed and null pops; with an index the value there is
    /// replaced or removed; with `[*]` all values of the name are replaced by this one.
    ///
    /// # Errors
    /// [`AvpsFull`] when the store cannot hold the value; it then keeps what it had.
    pub fn write(&mut self, name: &[u8], index: Index, value: ValueRef<'_>) -> Result<(), AvpsFull> {
        let name = plain(name);
        match index {
            Index::None if value.is_null() => self.remove(name, 0),
            Index::None => return self.push(name, value),
            Index::All => {
                while self.place(name, 0).is_some() {
                    self.remove(name, 0);
                }
                if !value.is_null() {
                    return self.push(name, value);
                }
            }
            Index::At(index) if value.is_null() => self.remove(name, index),
            Index::At(index) => {
                let Some(at) = self.place(name, index) else { return self.push(name, value) };
                let new = kept(name, value)?;
                let Some(slot) = self.values.get_mut(at) else { return Err(AvpsFull) };
                let bytes = self.bytes - slot.cost() + new.cost();
                if bytes > AVP_BYTES_MAX {
                    return Err(AvpsFull);
                }
                *slot = new;
                self.bytes = bytes;
            }
        }
        Ok(())
    }

    fn push(&mut self, name: &[u8], value: ValueRef<'_>) -> Result<(), AvpsFull> {
        let avp = kept(name, value)?;
        if self.values.len() >= AVP_VALUES_MAX || self.bytes + avp.cost() > AVP_BYTES_MAX {
            return Err(AvpsFull);
        }
        self.bytes += avp.cost();
        self.values.push(avp);
        Ok(())
    }

    fn remove(&mut self, name: &[u8], index: i32) {
        if let Some(at) = self.place(name, index) {
            let avp = self.values.remove(at);
            self.bytes -= avp.cost();
        }
    }
}

fn kept(name: &[u8], value: ValueRef<'_>) -> Result<Avp, AvpsFull> {
    let value = match value {
        ValueRef::Null => return Err(AvpsFull),
        ValueRef::Int(int) => Kept::Int(int),
        ValueRef::Str(bytes) if bytes.len() > AVP_BYTES_MAX => return Err(AvpsFull),
        ValueRef::Str(bytes) => Kept::Str(bytes.into()),
    };
    Ok(Avp { name: name.into(), value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assigning_pushes_and_null_pops() {
        let mut avps = Avps::new();
        avps.write(b"x", Index::None, ValueRef::Int(1)).unwrap();
        avps.write(b"s:x", Index::None, ValueRef::Str(b"two")).unwrap();
        avps.write(b"y", Index::None, ValueRef::Int(9)).unwrap();
        assert_eq!(avps.get(b"x", 0), ValueRef::Str(b"two"));
        assert_eq!(avps.get(b"x", 1), ValueRef::Int(1));
        assert_eq!(avps.get(b"x", -1), ValueRef::Int(1));
        assert_eq!(avps.get(b"x", 2), ValueRef::Null);
        avps.write(b"x", Index::None, ValueRef::Null).unwrap();
        assert_eq!(avps.get(b"x", 0), ValueRef::Int(1));
        avps.write(b"x", Index::All, ValueRef::Int(5)).unwrap();
        assert_eq!(avps.get(b"x", 0), ValueRef::Int(5));
        assert_eq!(avps.get(b"x", 1), ValueRef::Null);
        assert_eq!(avps.len(), 2);
    }

    #[test]
    fn a_full_store_keeps_what_it_had() {
        let mut avps = Avps::new();
        for value in 0..AVP_VALUES_MAX {
            avps.write(b"n", Index::None, ValueRef::Int(i64::try_from(value).unwrap())).unwrap();
        }
        assert_eq!(avps.write(b"n", Index::None, ValueRef::Int(0)), Err(AvpsFull));
        let long = alloc::vec![b'x'; AVP_BYTES_MAX];
        assert_eq!(avps.write(b"n", Index::At(0), ValueRef::Str(&long)), Err(AvpsFull));
        assert_eq!(avps.get(b"n", 0), ValueRef::Int(255));
        avps.write(b"n", Index::All, ValueRef::Null).unwrap();
        assert!(avps.is_empty());
    }
}
