//! Pull, push and ordered consumers.

use crate::site::{Result, Site, take};
use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::{PullConsumer, PushConsumer, pull, push};
use async_nats::jetstream::stream::{Config, Stream};
use futures_util::StreamExt;
use std::time::Duration;

/// Makes a stream with n messages at the first node, and opens it at the second.
async fn filled(site: &Site, name: &str, n: usize) -> Result<(Stream, Stream)> {
    let (js, other) = site.contexts().await?;
    let subjects = vec![format!("{name}.>")];
    let stream = site.stream(&js, Config { name: name.into(), subjects, ..Default::default() }).await?;
    for i in 0..n {
        js.publish(format!("{name}.{}", i % 2), i.to_string().into()).await?.await?;
    }
    Ok((stream, other.get_stream(name).await?))
}

pub async fn pull_consumers(site: &Site) -> Result {
    let (stream, other) = filled(site, "rspull", 10).await?;
    let config = pull::Config { durable_name: Some("d".into()), max_deliver: 3, ..Default::default() };
    stream.create_consumer(config).await?;
    let mut consumer: PullConsumer = other.get_consumer("d").await.map_err(|err| err.to_string())?;
    let mut batch = consumer.fetch().max_messages(4).messages().await?;
    for i in 0..4 {
        let m = batch.next().await.ok_or("no message")??;
        assert_eq!(m.payload, i.to_string());
        match i {
            2 => m.double_ack_with(AckKind::Term).await?,
            3 => m.ack_with(AckKind::Nak(Some(Duration::from_millis(300)))).await?,
            _ => m.double_ack().await?,
        }
    }
    let mut got = Vec::new();
    let mut messages = consumer.messages().await?;
    while got.len() < 7 {
        let m = messages.next().await.ok_or("no message")??;
        got.push((std::str::from_utf8(&m.payload)?.parse::<u32>()?, m.info()?.delivered));
        m.double_ack().await?;
    }
    got.sort();
    assert_eq!(got, [(3, 2), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1)]);
    let info = consumer.info().await?;
    assert_eq!((info.ack_floor.stream_sequence, info.num_pending), (10, 0));
    assert!(stream.delete_consumer("d").await?.success);
    assert!(other.consumer_info("d").await.is_err());
    Ok(())
}

pub async fn push_consumers(site: &Site) -> Result {
    let (stream, other) = filled(site, "rspush", 100).await?;
    let config = push::Config {
        durable_name: Some("pushed".into()),
        deliver_subject: "rspushed".into(),
        filter_subject: "rspush.1".into(),
        idle_heartbeat: Duration::from_secs(1),
        flow_control: true,
        ..Default::default()
    };
    stream.create_consumer(config).await?;
    let consumer: PushConsumer = other.get_consumer("pushed").await.map_err(|err| err.to_string())?;
    for (i, m) in take(&mut consumer.messages().await?, 50).await?.into_iter().enumerate() {
        let m = m?;
        assert_eq!(m.payload, (2 * i + 1).to_string());
        m.double_ack().await?;
    }
    assert_eq!(stream.consumer_info("pushed").await?.num_ack_pending, 0);
    Ok(())
}

pub async fn ordered_consumers(site: &Site) -> Result {
    let (_, other) = filled(site, "rsordered", 300).await?;
    let filter = "rsordered.1".to_string();
    let config = pull::OrderedConfig { filter_subject: filter.clone(), ..Default::default() };
    let mut pulled = other.create_consumer(config).await?.messages().await?;
    let deliver = "rs.ordered.target".to_string();
    let config = push::OrderedConfig { filter_subject: filter, deliver_subject: deliver, ..Default::default() };
    let mut pushed = other.create_consumer(config).await?.messages().await?;
    for i in 0..150 {
        let want = (2 * i + 1).to_string();
        assert_eq!(pulled.next().await.ok_or("no message")??.payload, want);
        assert_eq!(pushed.next().await.ok_or("no message")??.payload, want);
    }
    Ok(())
}
