//! Streams, and what publishers ask of them.

use crate::site::{Result, Site};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Config;

pub async fn streams(site: &Site) -> Result {
    let (js, other) = site.contexts().await?;
    let subjects = vec!["rsstream.>".to_string()];
    let config = Config { name: "rs".into(), subjects, max_messages_per_subject: 4, ..Default::default() };
    site.stream(&js, config).await?;
    for i in 0..10 {
        let ack = other.publish(format!("rsstream.{}", i % 2), i.to_string().into()).await?.await?;
        assert_eq!((ack.sequence, ack.stream.as_str()), (i + 1, "rs"));
    }
    let stream = other.get_stream("rs").await?;
    let state = stream.get_info().await?.state;
    assert_eq!((state.messages, state.first_sequence, state.last_sequence), (8, 3, 10));
    assert_eq!(stream.get_raw_message(5).await?.payload, "4");
    assert_eq!(stream.get_last_raw_message_by_subject("rsstream.0").await?.payload, "8");
    assert!(stream.delete_message(5).await?);
    assert!(stream.get_raw_message(5).await.is_err());
    assert_eq!(stream.purge().filter("rsstream.0").await?.purged, 3);
    let changed = Config { max_messages: 2, ..stream.get_info().await?.config };
    assert_eq!(js.update_stream(changed).await?.config.max_messages, 2);
    assert!(js.delete_stream("rs").await?.success);
    assert!(other.get_stream("rs").await.is_err());
    Ok(())
}

pub async fn expectations(site: &Site) -> Result {
    let (js, other) = site.contexts().await?;
    let subjects = vec!["rsexpect.>".to_string()];
    site.stream(&js, Config { name: "rsexpect".into(), subjects, ..Default::default() }).await?;
    let message = PublishMessage::build;
    let first = js.send_publish("rsexpect.a", message().message_id("one")).await?.await?;
    let again = other.send_publish("rsexpect.a", message().message_id("one")).await?.await?;
    assert_eq!((first.sequence, first.duplicate), (1, false));
    assert_eq!((again.sequence, again.duplicate), (1, true));
    let ack = js.send_publish("rsexpect.a", message().expected_last_sequence(1)).await?.await?;
    assert_eq!(ack.sequence, 2);
    for (refused, kind) in [
        (message().expected_last_sequence(1), PublishErrorKind::WrongLastSequence),
        (message().expected_last_subject_sequence(1), PublishErrorKind::WrongLastSequence),
        (message().expected_last_message_id("one"), PublishErrorKind::WrongLastMessageId),
        (message().expected_stream("other"), PublishErrorKind::Other),
    ] {
        let err = other.send_publish("rsexpect.a", refused).await?.await.unwrap_err();
        assert_eq!(err.kind(), kind);
    }
    let ack = other.send_publish("rsexpect.b", message().expected_last_subject_sequence(0)).await?.await?;
    assert_eq!(ack.sequence, 3);
    let mut acks = Vec::new();
    for i in 0..200 {
        acks.push(js.publish("rsexpect.async", i.to_string().into()).await?);
    }
    for (i, ack) in acks.into_iter().enumerate() {
        assert_eq!(ack.await?.sequence, i as u64 + 4);
    }
    assert!(js.delete_stream("rsexpect").await?.success);
    Ok(())
}

pub async fn direct_gets(site: &Site) -> Result {
    let (js, other) = site.contexts().await?;
    let subjects = vec!["rsdirect.>".to_string()];
    let config = Config { name: "rsdirect".into(), subjects, allow_direct: true, ..Default::default() };
    site.stream(&js, config).await?;
    for i in 0..9 {
        js.publish(format!("rsdirect.{}", i % 3), i.to_string().into()).await?.await?;
    }
    let stream = other.get_stream("rsdirect").await?;
    assert_eq!(stream.direct_get(4).await?.payload, "3");
    assert_eq!(stream.direct_get_last_for_subject("rsdirect.1").await?.payload, "7");
    assert_eq!(stream.direct_get_next_for_subject("rsdirect.2", Some(4)).await?.payload, "5");
    assert!(stream.direct_get(99).await.is_err());
    assert!(js.delete_stream("rsdirect").await?.success);
    Ok(())
}
