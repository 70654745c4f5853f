//! Publish, subscribe, request.

use crate::site::{Result, Site, take};
use async_nats::HeaderMap;
use futures_util::StreamExt;

pub async fn publish_and_subscribe(site: &Site) -> Result {
    let (a, b) = site.pair().await?;
    let mut sub = site.subscribed(&b, "rs.*.x").await?;
    for i in 0..100 {
        a.publish(format!("rs.{i}.x"), i.to_string().into()).await?;
    }
    for (i, m) in take(&mut sub, 100).await?.iter().enumerate() {
        assert_eq!(m.subject.as_str(), format!("rs.{i}.x"));
        assert_eq!(m.payload, i.to_string());
    }
    Ok(())
}

pub async fn request_and_reply(site: &Site) -> Result {
    let (a, b) = site.pair().await?;
    let mut questions = site.subscribed(&b, "rs.help").await?;
    tokio::spawn(async move {
        while let Some(m) = questions.next().await {
            let answer = [b"re: ", &m.payload[..]].concat();
            let _ = b.publish(m.reply.unwrap(), answer.into()).await;
        }
    });
    for i in 0..20 {
        let m = a.request("rs.help", i.to_string().into()).await?;
        assert_eq!(m.payload, format!("re: {i}"));
    }
    Ok(())
}

pub async fn nobody_answers(site: &Site) -> Result {
    let (a, _) = site.pair().await?;
    let err = a.request("rs.nobody", "".into()).await.unwrap_err();
    assert_eq!(err.kind(), async_nats::RequestErrorKind::NoResponders);
    Ok(())
}

pub async fn message_headers(site: &Site) -> Result {
    let (a, b) = site.pair().await?;
    let mut sub = site.subscribed(&b, "rs.headers").await?;
    let mut headers = HeaderMap::new();
    headers.append("Key", "one");
    headers.append("Key", "two");
    a.publish_with_headers("rs.headers", headers.clone(), "data".into()).await?;
    let m = &take(&mut sub, 1).await?[0];
    assert_eq!((m.headers.as_ref(), &m.payload[..]), (Some(&headers), &b"data"[..]));
    Ok(())
}

pub async fn queue_group(site: &Site) -> Result {
    let (a, b) = site.pair().await?;
    let one = a.queue_subscribe("rs.queue", "q".into()).await?;
    let two = b.queue_subscribe("rs.queue", "q".into()).await?;
    site.settle(&a).await?;
    site.settle(&b).await?;
    for i in 0..300 {
        a.publish("rs.queue", i.to_string().into()).await?;
    }
    let mut both = futures_util::stream::select(one, two);
    let mut got: Vec<u32> = Vec::new();
    for m in take(&mut both, 300).await? {
        got.push(std::str::from_utf8(&m.payload)?.parse()?);
    }
    got.sort();
    assert_eq!(got, (0..300).collect::<Vec<_>>());
    Ok(())
}
