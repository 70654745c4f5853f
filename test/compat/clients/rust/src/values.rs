//! Key-value buckets.

use crate::site::{Result, Site, all, take};
use async_nats::jetstream::kv::{Config, CreateErrorKind, Operation, Store, UpdateErrorKind};

/// Makes an empty bucket at the first node, and opens it at the second.
async fn made(site: &Site, bucket: &str, history: i64) -> Result<(Store, Store)> {
    let (js, other) = site.contexts().await?;
    let _ = js.delete_key_value(bucket).await; // one of a run that was ended
    let num_replicas = site.replicas;
    let config = Config { bucket: bucket.into(), history, num_replicas, ..Default::default() };
    Ok((js.create_key_value(config).await?, other.get_key_value(bucket).await?))
}

pub async fn keys_and_values(site: &Site) -> Result {
    let (kv, other) = made(site, "rskv", 5).await?;
    assert_eq!(kv.put("key", "first".into()).await?, 1);
    assert_eq!(other.get("key").await?, Some("first".into()));
    let err = other.create("key", "again".into()).await.unwrap_err();
    assert_eq!(err.kind(), CreateErrorKind::AlreadyExists);
    assert_eq!(other.create("other", "second".into()).await?, 2);
    let err = kv.update("key", "third".into(), 9).await.unwrap_err();
    assert_eq!(err.kind(), UpdateErrorKind::WrongLastRevision);
    assert_eq!(kv.update("key", "third".into(), 1).await?, 3);
    assert_eq!(other.entry_for_revision("key", 1).await?.ok_or("no entry")?.value, "first");
    assert_eq!(kv.get("nothing").await?, None);
    let mut keys = all(other.keys().await?).await?;
    keys.sort();
    assert_eq!(keys, ["key", "other"]);
    kv.delete("key").await?;
    assert_eq!(other.get("key").await?, None);
    assert_eq!(other.entry("key").await?.ok_or("no entry")?.operation, Operation::Delete);
    assert_eq!(all(other.keys().await?).await?, ["other"]);
    assert_eq!(other.create("key", "fourth".into()).await?, 5);
    for i in 0..10 {
        kv.put("key", i.to_string().into()).await?;
    }
    let values: Vec<_> = all(other.history("key").await?).await?.into_iter().map(|e| e.value).collect();
    assert_eq!(values, ["5", "6", "7", "8", "9"]);
    kv.purge("key").await?;
    let operations: Vec<_> = all(other.history("key").await?).await?.into_iter().map(|e| e.operation).collect();
    assert_eq!(operations, [Operation::Purge]);
    let (js, _) = site.contexts().await?;
    assert_eq!(js.get_stream("KV_rskv").await?.get_info().await?.state.messages, 2);
    assert!(js.delete_key_value("rskv").await?.success);
    assert!(js.get_key_value("rskv").await.is_err());
    Ok(())
}

pub async fn watched_keys(site: &Site) -> Result {
    let (kv, other) = made(site, "rswatch", 3).await?;
    kv.put("a.x", "1".into()).await?;
    let mut every = other.watch_with_history(">").await?;
    let mut some = other.watch("a.*").await?;
    let first = take(&mut every, 1).await?.remove(0)?;
    assert_eq!((first.key.as_str(), first.revision), ("a.x", 1));
    kv.put("b.x", "2".into()).await?;
    kv.delete("a.x").await?;
    kv.purge("a.y").await?;
    let want = [("b.x", Operation::Put), ("a.x", Operation::Delete), ("a.y", Operation::Purge)];
    for (entry, (key, operation)) in take(&mut every, 3).await?.into_iter().zip(want) {
        let entry = entry?;
        assert_eq!((entry.key.as_str(), entry.operation), (key, operation));
    }
    for (entry, (key, operation)) in take(&mut some, 2).await?.into_iter().zip(&want[1..]) {
        let entry = entry?;
        assert_eq!((entry.key.as_str(), entry.operation), (*key, *operation));
    }
    Ok(())
}
