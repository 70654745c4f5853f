//! The servers that the stories run at: two nodes of a cluster, or twice the same server.

use async_nats::jetstream::stream::{Config, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, Subscriber};
use futures_util::{Stream as Items, StreamExt};
use std::time::Duration;

/// Why a story does not hold. Failed assertions panic.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T = ()> = std::result::Result<T, Error>;

pub struct Site {
    first: String,
    second: String,
    /// As many as there are nodes.
    pub replicas: usize,
}

impl Site {
    pub fn new(first: &str, second: &str) -> Site {
        let replicas = std::env::var("REPLICAS").ok().and_then(|n| n.parse().ok());
        Site { first: first.into(), second: second.into(), replicas: replicas.unwrap_or(1) }
    }

    pub async fn pair(&self) -> Result<(Client, Client)> {
        Ok((async_nats::connect(&self.first).await?, async_nats::connect(&self.second).await?))
    }

    pub async fn contexts(&self) -> Result<(Context, Context)> {
        let (a, b) = self.pair().await?;
        Ok((jetstream::new(a), jetstream::new(b)))
    }

    /// Subscribes, and returns when publishers at both nodes reach the subscription.
    pub async fn subscribed(&self, client: &Client, subject: &'static str) -> Result<Subscriber> {
        let sub = client.subscribe(subject).await?;
        self.settle(client).await?;
        Ok(sub)
    }

    pub async fn settle(&self, client: &Client) -> Result {
        // A round trip: flush of async-nats only waits for the socket.
        let _ = client.request("rs.nobody", "".into()).await;
        if self.first != self.second {
            // Interest reaches the other node after the PONG of this one.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Makes an empty stream.
    pub async fn stream(&self, js: &Context, config: Config) -> Result<Stream> {
        let _ = js.delete_stream(&config.name).await; // one of a run that was ended
        Ok(js.create_stream(Config { num_replicas: self.replicas, ..config }).await?)
    }
}

/// Returns the next n items.
pub async fn take<T>(items: &mut (impl Items<Item = T> + Unpin), n: usize) -> Result<Vec<T>> {
    let mut got = Vec::new();
    while got.len() < n {
        got.push(items.next().await.ok_or("no more items")?);
    }
    Ok(got)
}

/// Returns all items.
pub async fn all<T, E>(mut items: impl Items<Item = std::result::Result<T, E>> + Unpin) -> Result<Vec<T>>
where
    Error: From<E>,
{
    let mut got = Vec::new();
    while let Some(item) = items.next().await {
        got.push(item?);
    }
    Ok(got)
}
