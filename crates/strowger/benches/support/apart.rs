//! The script by itself: a transaction user that hands everything to another one, through a function that a profiler
//! finds by its name, and with a clock around it.

use std::time::{Duration, Instant};

use engine::{
    Answer, BranchContext, BranchVerdict, Handled, ReplyContext, ReplyVerdict, RequestContext,
    TransactionUser,
};

/// See the module's documentation.
pub struct Apart<U> {
    user: U,
    /// Whether runs are measured; others are warm-up.
    pub measured: bool,
    /// Time spent in measured runs, and how many there were.
    pub spent: (Duration, u32),
}

impl<U> Apart<U> {
    /// Around `user`.
    pub fn new(user: U) -> Apart<U> {
        Apart { user, measured: false, spent: (Duration::ZERO, 0) }
    }
}

/// One run of a request route, with all that its functions do in modules, engine and location.
#[inline(never)]
fn run_script<U: TransactionUser>(
    user: &mut U,
    cx: &mut RequestContext<'_, U::State>,
) -> Handled<U::Suspended> {
    user.on_request(cx)
}

impl<U: TransactionUser> TransactionUser for Apart<U> {
    type State = U::State;
    type Suspended = U::Suspended;

    fn on_request(&mut self, cx: &mut RequestContext<'_, Self::State>) -> Handled<Self::Suspended> {
        if !self.measured {
            return self.user.on_request(cx);
        }
        let begin = Instant::now();
        let handled = run_script(&mut self.user, cx);
        self.spent.0 += begin.elapsed();
        self.spent.1 += 1;
        handled
    }

    fn on_answer(
        &mut self,
        cx: &mut RequestContext<'_, Self::State>,
        suspended: Self::Suspended,
        answer: Answer<'_>,
    ) -> Handled<Self::Suspended> {
        self.user.on_answer(cx, suspended, answer)
    }

    fn on_reply(&mut self, cx: &mut ReplyContext<'_, Self::State>) -> ReplyVerdict {
        self.user.on_reply(cx)
    }

    fn on_failure(&mut self, cx: &mut RequestContext<'_, Self::State>) {
        self.user.on_failure(cx);
    }

    fn failure_armed(&self, state: &Self::State) -> bool {
        self.user.failure_armed(state)
    }

    fn on_branch(&mut self, cx: &mut BranchContext<'_, Self::State>) -> BranchVerdict {
        self.user.on_branch(cx)
    }
}
