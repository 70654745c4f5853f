//! Object stores.

use crate::site::{Result, Site, all, take};
use async_nats::jetstream::object_store::{Config, ObjectStore};
use tokio::io::AsyncReadExt;

/// Makes an empty store at the first node, and opens it at the second.
async fn made(site: &Site, bucket: &str) -> Result<(ObjectStore, ObjectStore)> {
    let (js, other) = site.contexts().await?;
    let _ = js.delete_object_store(bucket).await; // one of a run that was ended
    let config = Config { bucket: bucket.into(), num_replicas: site.replicas, ..Default::default() };
    Ok((js.create_object_store(config).await?, other.get_object_store(bucket).await?))
}

async fn read(store: &ObjectStore, name: &str) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    store.get(name).await?.read_to_end(&mut data).await?;
    Ok(data)
}

pub async fn object_store(site: &Site) -> Result {
    let (store, other) = made(site, "rsobj").await?;
    let data: Vec<u8> = (0..5_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let info = store.put("large", &mut data.as_slice()).await?;
    assert_eq!((info.size, info.chunks), (5_000_000, 39));
    let small = other.put("small", &mut "a few bytes".as_bytes()).await?;
    assert!(read(&other, "large").await? == data);
    assert_eq!(read(&store, "small").await?, b"a few bytes");
    let mut sizes: Vec<_> = all(other.list().await?).await?.into_iter().map(|o| (o.name, o.size)).collect();
    sizes.sort();
    assert_eq!(sizes, [("large".to_string(), 5_000_000), ("small".to_string(), 11)]);
    let changed = store.put("small", &mut "other bytes of it".as_bytes()).await?;
    assert_ne!(changed.nuid, small.nuid);
    assert_eq!(read(&other, "small").await?, b"other bytes of it");
    store.delete("large").await?;
    assert!(other.get("large").await.is_err());
    assert!(other.info("large").await?.deleted);
    let (js, _) = site.contexts().await?;
    assert_eq!(js.get_stream("OBJ_rsobj").await?.get_info().await?.state.messages, 3);
    js.delete_object_store("rsobj").await?;
    assert!(js.get_object_store("rsobj").await.is_err());
    Ok(())
}

pub async fn watched_objects(site: &Site) -> Result {
    let (store, other) = made(site, "rsobjwatch").await?;
    let mut watch = other.watch().await?;
    store.put("one", &mut "1".as_bytes()).await?;
    let seen = take(&mut watch, 1).await?.remove(0)?;
    assert_eq!((seen.name.as_str(), seen.deleted), ("one", false));
    store.delete("one").await?;
    let seen = take(&mut watch, 1).await?.remove(0)?;
    assert_eq!((seen.name.as_str(), seen.deleted), ("one", true));
    Ok(())
}

pub async fn sealed_object_store(site: &Site) -> Result {
    let (mut store, other) = made(site, "rsseal").await?;
    store.put("kept", &mut "1".as_bytes()).await?;
    store.seal().await?;
    assert!(other.put("more", &mut "2".as_bytes()).await.is_err());
    assert_eq!(read(&other, "kept").await?, b"1");
    Ok(())
}
