//! The database servers of the tests themselves: what they do on command.

use std::time::{Duration, Instant};

use end_to_end::{Crowd, Database, Promise, Sql, Start};

#[test]
fn databases_take_kamailios_tables_and_keep_rows_through_every_end() {
    for sql in Sql::ALL {
        let mut database = Database::of_kamailio(sql);
        database.run("INSERT INTO domain (domain) VALUES ('example.org');");
        let count = "SELECT COUNT(*) FROM domain;";
        assert_eq!(database.number(count), 1, "{sql:?}");
        database.stop();
        database.start();
        assert_eq!(database.number(count), 1, "{sql:?}");
        database.kill();
        database.start();
        assert_eq!(database.number(count), 1, "{sql:?}");
        database.pause();
        database.resume();
        assert_eq!(database.number(count), 1, "{sql:?}");
        database.cut_connections();
        assert_eq!(database.number(count), 1, "{sql:?}");
    }
}

#[test]
fn a_database_starts_soon() {
    let began = Instant::now();
    drop(Database::new(Sql::Postgres));
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

/// The crowd itself: with a registrar that lives and forgets nothing it has no complaint.
#[test]
fn a_crowd_agrees_with_a_registrar_that_lives() {
    let server =
        Start::configuration("registrar-db").define("DB_URL", "\"sqlite:\"").define("DB_MODE", "0").spawn();
    let mut crowd = Crowd::new(server.address(), 500, 1);
    let load = crowd.load(Duration::from_secs(1));
    crowd.settle();
    crowd.check(Promise::WriteThrough);
    assert!(load.accepted > 50 && load.refused > 0 && crowd.registered() > 50, "{load:?}");
}
