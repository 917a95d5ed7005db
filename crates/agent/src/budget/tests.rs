#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mainstay_store::payload::{PayloadOptions, PayloadStore};
use mainstay_telemetry::clock::ManualClock;

use super::*;

fn dollars(dollars: f64) -> Amount {
    Amount::from_dollars(dollars)
}

fn limits(daily: Option<f64>, monthly: Option<f64>, when_exceeded: WhenExceeded) -> BudgetLimits {
    BudgetLimits {
        daily: daily.map(dollars),
        monthly: monthly.map(dollars),
        when_exceeded,
        alert_at: vec![50, 80],
    }
}

struct World {
    clock: Arc<ManualClock>,
    store: PayloadStore,
}

impl World {
    fn new() -> Self {
        Self {
            clock: ManualClock::at("2026-05-30T23:00:00Z".parse().unwrap()),
            store: PayloadStore::open(PayloadOptions::in_memory()).unwrap(),
        }
    }

    /// What a process knows that has just started.
    fn process(&self) -> Budgets {
        let store = Arc::new(StoredBudgets::new(self.store.clone()));
        Budgets::new(self.clock.clone(), store, BudgetMetrics::default())
    }

    /// A process that has just started, and its store, which fails.
    fn process_without_store(&self) -> (Budgets, Arc<Failing>) {
        let store = Arc::new(Failing {
            store: StoredBudgets::new(self.store.clone()),
            fails: AtomicBool::new(true),
        });
        let budgets = Budgets::new(self.clock.clone(), store.clone(), BudgetMetrics::default());
        (budgets, store)
    }

    async fn charged(&self, period: &str) -> Amount {
        let stored = self
            .store
            .spending("default/main", vec![period.to_owned()])
            .await
            .unwrap();
        Amount::from_units(stored.first().map_or(0, |stored| stored.charged))
    }
}

/// A store that fails while it is told to.
#[derive(Debug)]
struct Failing {
    store: StoredBudgets,
    fails: AtomicBool,
}

impl Failing {
    fn check(&self) -> Result<(), BudgetStoreError> {
        match self.fails.load(Ordering::SeqCst) {
            true => Err(BudgetStoreError("the disk is gone".into())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl BudgetStore for Failing {
    async fn load(&self, scope: &str, periods: Vec<String>) -> Result<Vec<Spending>, BudgetStoreError> {
        self.check()?;
        self.store.load(scope, periods).await
    }

    async fn charge(&self, scope: &str, charges: Vec<Spending>) -> Result<(), BudgetStoreError> {
        self.check()?;
        self.store.charge(scope, charges).await
    }
}

fn exceeded(reserved: Result<Reservation, Refused>) -> Exceeded {
    match reserved {
        Err(Refused::Exceeded(exceeded)) => exceeded,
        other => panic!("{other:?}"),
    }
}

fn budget(budgets: &Budgets, limits: BudgetLimits) -> Budget {
    Budget {
        ledger: budgets.ledger("default/main"),
        limits,
    }
}

#[tokio::test]
async fn om_204_what_calls_may_cost_is_put_aside_before_and_settled_after() {
    let world = World::new();
    let budgets = world.process();
    let budget = budget(&budgets, limits(Some(10.0), None, WhenExceeded::Block));
    let first = budget.reserve(dollars(6.0)).await.unwrap();
    // The first is not settled yet: the second might go beyond, whatever the first will cost.
    let refused = exceeded(budget.reserve(dollars(5.0)).await);
    assert_eq!(
        refused,
        Exceeded {
            scope: "default/main".to_owned(),
            period: Period::Daily,
            limit: dollars(10.0),
            spent: dollars(6.0),
            needed: dollars(5.0),
        }
    );
    assert_eq!(budget.settle(first, dollars(1.0)).await, []);
    let second = budget.reserve(dollars(5.0)).await.unwrap();
    // Dearer than was thought: it counts all the same.
    let alerts = budget.settle(second, dollars(7.5)).await;
    assert_eq!(
        alerts,
        [Alert {
            scope: "default/main".to_owned(),
            period: Period::Daily,
            percent: 80,
            limit: dollars(10.0),
            spent: dollars(8.5),
        }],
        "the highest of the thresholds that were crossed"
    );
    assert!(budget.reserve(dollars(1.6)).await.is_err());
    let last = budget.reserve(dollars(1.5)).await.unwrap();
    assert_eq!(budget.settle(last, dollars(1.5)).await, [], "told once a day");
}

#[tokio::test]
async fn om_204_warn_lets_calls_through_and_says_which_limit_they_go_beyond() {
    let world = World::new();
    let budgets = world.process();
    for action in [WhenExceeded::Warn, WhenExceeded::PauseJobs] {
        let budget = budget(&budgets, limits(None, Some(0.0), action));
        let reservation = budget.reserve(dollars(1.0)).await.unwrap();
        assert_eq!(
            reservation.beyond.as_ref().map(|beyond| beyond.period),
            Some(Period::Monthly)
        );
        budget.settle(reservation, Amount::ZERO).await;
    }
}

#[tokio::test]
async fn contract_8_the_store_is_written_once_a_block_and_an_end_in_order_gives_the_rest_back() {
    let world = World::new();
    let budgets = world.process();
    let budget = budget(&budgets, limits(Some(10.0), Some(100.0), WhenExceeded::Block));
    let before = world.store.statistics().writes;
    // A block is a hundredth of the smallest limit: ten cents. Fifty calls of a tenth of a cent fit into one.
    for _ in 0..50 {
        let reservation = budget.reserve(dollars(0.001)).await.unwrap();
        budget.settle(reservation, dollars(0.001)).await;
    }
    assert_eq!(world.store.statistics().writes - before, 1);
    assert_eq!(world.charged("2026-05-30").await, dollars(0.1));
    budgets.close().await;
    assert_eq!(world.charged("2026-05-30").await, dollars(0.05));
    assert_eq!(world.charged("2026-05").await, dollars(0.05));
}

#[tokio::test]
async fn contract_8_a_crash_loses_at_most_a_block_and_what_was_spent_holds_over_a_restart() {
    let world = World::new();
    let limits = limits(Some(10.0), None, WhenExceeded::Block);
    {
        let budgets = world.process();
        let budget = budget(&budgets, limits.clone());
        let reservation = budget.reserve(dollars(9.0)).await.unwrap();
        budget.settle(reservation, dollars(8.95)).await;
        // The process ends here, without a word.
    }
    let budgets = world.process();
    let budget = budget(&budgets, limits);
    assert!(budget.reserve(dollars(1.1)).await.is_err());
    let charged = world.charged("2026-05-30").await;
    assert!(
        charged >= dollars(8.95) && charged <= dollars(8.95 + 0.1),
        "{charged}"
    );
    let _kept = budget.reserve(dollars(0.9)).await.unwrap();
}

#[tokio::test]
async fn a_new_day_begins_at_nothing_and_the_month_goes_on_until_it_ends() {
    let world = World::new();
    let budgets = world.process();
    let budget = budget(&budgets, limits(Some(10.0), Some(15.0), WhenExceeded::Block));
    let late = budget.reserve(dollars(9.0)).await.unwrap();
    world.clock.advance(Duration::from_secs(2 * 3600));
    // Put aside on the 30th and settled on the 31st: it was the 30th's.
    budget.settle(late, dollars(8.0)).await;
    let next = budget.reserve(dollars(5.0)).await.unwrap();
    budget.settle(next, dollars(5.0)).await;
    let refused = exceeded(budget.reserve(dollars(2.1)).await);
    assert_eq!((refused.period, refused.spent), (Period::Monthly, dollars(13.0)));
    world.clock.advance(Duration::from_secs(24 * 3600));
    let _june = budget.reserve(dollars(10.0)).await.unwrap();
    assert_eq!(
        world.charged("2026-05-30").await,
        Amount::ZERO,
        "days that are over are dropped"
    );
}

#[tokio::test]
async fn what_a_call_over_midnight_did_not_cost_is_the_months_again() {
    let world = World::new();
    let budgets = world.process();
    let budget = budget(&budgets, limits(None, Some(15.0), WhenExceeded::Block));
    let late = budget.reserve(dollars(9.0)).await.unwrap();
    world.clock.advance(Duration::from_secs(2 * 3600));
    budget.settle(late, dollars(1.0)).await;
    assert_eq!(world.charged("2026-05").await, dollars(1.0));
    let next = budget.reserve(dollars(14.0)).await.unwrap();
    assert_eq!(exceeded(budget.reserve(dollars(0.1)).await).spent, dollars(15.0));
    // A month that is over gets nothing back: it counts no more.
    world.clock.advance(Duration::from_secs(24 * 3600));
    budget.settle(next, dollars(1.0)).await;
    let _june = budget.reserve(dollars(15.0)).await.unwrap();
    assert_eq!(world.charged("2026-06").await, dollars(15.0));
    assert!(budget.reserve(dollars(0.1)).await.is_err());
}

#[tokio::test]
async fn om_204_a_budget_that_blocks_does_not_begin_anew_when_nobody_can_say_what_is_spent() {
    let world = World::new();
    let limits = limits(Some(10.0), Some(15.0), WhenExceeded::Block);
    let earlier = world.process();
    let spent = budget(&earlier, limits.clone());
    let call = spent.reserve(dollars(9.0)).await.unwrap();
    spent.settle(call, dollars(9.0)).await;
    let (budgets, store) = world.process_without_store();
    let budget = budget(&budgets, limits);
    for _again in 0..2 {
        let refused = budget.reserve(dollars(2.0)).await.unwrap_err();
        assert!(
            matches!(&refused, Refused::Unknown { scope, .. } if scope == "default/main"),
            "{refused:?}"
        );
    }
    store.fails.store(false, Ordering::SeqCst);
    assert_eq!(exceeded(budget.reserve(dollars(2.0)).await).spent, dollars(9.0));
    // A new day whose beginning fails.
    store.fails.store(true, Ordering::SeqCst);
    world.clock.advance(Duration::from_secs(2 * 3600));
    assert!(matches!(
        budget.reserve(dollars(2.0)).await,
        Err(Refused::Unknown { .. })
    ));
    store.fails.store(false, Ordering::SeqCst);
    let refused = exceeded(budget.reserve(dollars(7.0)).await);
    assert_eq!((refused.period, refused.spent), (Period::Monthly, dollars(9.0)));
    let _kept = budget.reserve(dollars(6.0)).await.unwrap();
}

#[tokio::test]
async fn om_204_calls_that_are_made_while_nobody_can_say_what_is_spent_are_charged_later() {
    let world = World::new();
    let (budgets, store) = world.process_without_store();
    let budget = budget(&budgets, limits(Some(10.0), None, WhenExceeded::Warn));
    let call = budget.reserve(dollars(5.0)).await.unwrap();
    assert_eq!(call.beyond, None);
    assert_eq!(budget.settle(call, dollars(4.0)).await, []);
    assert_eq!(budget.spent(dollars(2.0)).await, []);
    store.fails.store(false, Ordering::SeqCst);
    let next = budget.reserve(dollars(5.0)).await.unwrap();
    assert_eq!(
        next.beyond.as_ref().map(|beyond| beyond.spent),
        Some(dollars(6.0))
    );
    budget.settle(next, dollars(1.0)).await;
    budgets.close().await;
    assert_eq!(world.charged("2026-05-30").await, dollars(7.0));
    assert_eq!(world.charged("2026-05").await, dollars(7.0));
}

#[tokio::test]
async fn sessions_that_call_at_once_never_go_beyond_a_limit_together() {
    let world = World::new();
    let budgets = world.process();
    let budget = budget(&budgets, limits(Some(1.0), None, WhenExceeded::Block));
    let calls = (0..200).map(|_| async {
        match budget.reserve(dollars(0.03)).await {
            Ok(reservation) => {
                tokio::task::yield_now().await;
                budget.settle(reservation, dollars(0.02)).await;
                dollars(0.02)
            }
            Err(_) => Amount::ZERO,
        }
    });
    let spent = futures::future::join_all(calls).await;
    let spent = spent.into_iter().fold(Amount::ZERO, |sum, cost| sum + cost);
    assert!(spent > dollars(0.5) && spent <= dollars(1.0), "{spent}");
}
