//! Questions of scripts to the outside, on their way to who answers them: databases, the persister.

use std::time::Instant as SystemClock;

use engine::{Ask, AskId, OwnedAnswer, Rows};
use net::{Parcel, Post};
use sip::Instant;
use store::{Selected, Selector, StoreError};

use crate::clock::Time;
use crate::persistence::Persister;

/// Where questions go; one for each shard.
#[derive(Clone, Debug)]
pub(crate) struct Asks {
    /// In the order of [`modules::Settings::databases`]; `None` for one that nobody asks for rows.
    selectors: Vec<Option<Selector>>,
    persister: Option<Persister>,
    time: Time,
}

impl Asks {
    pub(crate) fn new(selectors: Vec<Option<Selector>>, persister: Option<Persister>, time: Time) -> Asks {
        Asks { selectors, persister, time }
    }

    /// Passes a question on; its answer comes to `post`, unless its queue is full: then the engine's own deadline answers.
    pub(crate) fn ask(&self, id: AskId, ask: Ask, deadline: Instant, post: &Post) {
        let deadline = self.time.system(deadline);
        match ask {
            Ask::Select(select) => self.select(id, *select, deadline, post),
            Ask::Persist { aor } => self.persist(id, aor, false, deadline, post),
            Ask::Refresh { aor } => self.persist(id, aor, true, deadline, post),
            // Names are the loop's own business; what is new here is not known here.
            _ => answer(post, id, OwnedAnswer::Failed),
        }
    }

    fn select(&self, id: AskId, select: engine::Select, deadline: SystemClock, post: &Post) {
        let selector = self.selectors.get(usize::from(select.database)).and_then(Option::as_ref);
        let Some(selector) = selector else { return answer(post, id, OwnedAnswer::Failed) };
        let question = store::Select {
            table: select.table,
            columns: select.columns,
            keys: select.keys,
            rows_max: select.rows_max,
        };
        let post = post.clone();
        selector.ask(question, deadline, Box::new(move |rows| answer(&post, id, answer_of(rows))));
    }

    fn persist(&self, id: AskId, aor: Box<[u8]>, is_refresh: bool, deadline: SystemClock, post: &Post) {
        match &self.persister {
            Some(persister) => persister.ask(id, aor, is_refresh, deadline, post),
            // In memory everything is where it belongs.
            None => answer(post, id, OwnedAnswer::Done),
        }
    }
}

fn answer(post: &Post, id: AskId, answer: OwnedAnswer) {
    post.send(Parcel::Answer { id, answer });
}

fn answer_of(selected: Selected) -> OwnedAnswer {
    match selected {
        Ok(rows) => OwnedAnswer::Rows(Rows(rows)),
        Err(StoreError::Away(_)) => OwnedAnswer::Failed,
        Err(_) => OwnedAnswer::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_database_says_is_what_a_script_hears() {
        assert_eq!(answer_of(Ok(Vec::new())), OwnedAnswer::Rows(Rows(Vec::new())));
        assert_eq!(answer_of(Err(StoreError::Away("late".into()))), OwnedAnswer::Failed);
        for no in [StoreError::Refused("full".into()), StoreError::Unfit("no table".into())] {
            assert_eq!(answer_of(Err(no)), OwnedAnswer::Refused);
        }
    }
}
