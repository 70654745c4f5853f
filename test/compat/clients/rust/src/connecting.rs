//! Ways to connect, to servers with users and TLS, and what servers refuse. PLAIN, TLS, MTLS, WS
//! and WSS are URLs; CA and IDENTITIES are what ../identities.sh makes.

use crate::site::{Result, Site};
use async_nats::jetstream::{self, stream::Config};
use async_nats::{ConnectErrorKind, ConnectOptions, Event, ServerError};
use futures_util::StreamExt;
use std::path::PathBuf;
use std::time::Duration;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("there is no {name}"))
}

fn identity(name: &str) -> PathBuf {
    PathBuf::from(variable("IDENTITIES")).join(name)
}

fn options() -> ConnectOptions {
    ConnectOptions::new().connection_timeout(Duration::from_secs(10)).request_timeout(Some(Duration::from_secs(10)))
}

fn password(password: &str) -> ConnectOptions {
    options().user_and_password("ann".into(), password.into())
}

fn nkey(name: &str) -> Result<ConnectOptions> {
    Ok(options().nkey(std::fs::read_to_string(identity(name))?))
}

fn trusting(options: ConnectOptions) -> ConnectOptions {
    options.add_root_certificates(variable("CA").into())
}

fn certificate(name: &str) -> ConnectOptions {
    trusting(options()).add_client_certificate(identity(&format!("{name}.crt")), identity(&format!("{name}.key")))
}

/// Asks, answers, stores, and is told what it may not publish.
async fn works(url: &str, options: ConnectOptions) -> Result {
    let (events, mut told) = tokio::sync::mpsc::unbounded_channel();
    let options = options.event_callback(move |event| {
        let _ = events.send(event);
        async {}
    });
    let client = options.connect(variable(url)).await?;
    let mut questions = client.subscribe("rsconnect.help").await?;
    let answering = client.clone();
    tokio::spawn(async move {
        while let Some(m) = questions.next().await {
            let answer = [b"re: ", &m.payload[..]].concat();
            let _ = answering.publish(m.reply.unwrap(), answer.into()).await;
        }
    });
    assert_eq!(client.request("rsconnect.help", "me".into()).await?.payload, "re: me");
    let js = jetstream::new(client.clone());
    let _ = js.delete_stream("rsconnect").await; // one of a run that was ended
    let config = Config { name: "rsconnect".into(), subjects: vec!["rsconnect.stored".into()], ..Default::default() };
    let stream = js.create_stream(config).await?;
    let ack = js.publish("rsconnect.stored", "data".into()).await?.await?;
    assert_eq!(stream.get_raw_message(ack.sequence).await?.payload, "data");
    client.publish("denied.stored", "data".into()).await?;
    let violation = loop {
        match told.recv().await.ok_or("no more events")? {
            Event::ServerError(err) => break err,
            event => assert!(matches!(event, Event::Connected), "{event}"),
        }
    };
    assert_eq!(violation, ServerError::Other("Permissions Violation for Publish to \"denied.stored\"".into()));
    assert_eq!(client.request("rsconnect.help", "again".into()).await?.payload, "re: again");
    js.delete_stream("rsconnect").await?;
    Ok(())
}

pub async fn user_and_password(_: &Site) -> Result {
    works("PLAIN", password("secret")).await
}

pub async fn user_and_password_over_tls(_: &Site) -> Result {
    works("TLS", trusting(password("secret"))).await
}

pub async fn nkey_user(_: &Site) -> Result {
    works("PLAIN", nkey("service.nk")?).await
}

pub async fn nkey_over_tls(_: &Site) -> Result {
    works("TLS", trusting(nkey("service.nk")?)).await
}

pub async fn client_certificate(_: &Site) -> Result {
    works("MTLS", certificate("client")).await
}

pub async fn websocket(_: &Site) -> Result {
    works("WS", password("secret")).await
}

pub async fn websocket_with_nkey(_: &Site) -> Result {
    works("WS", nkey("service.nk")?).await
}

pub async fn websocket_over_tls(_: &Site) -> Result {
    works("WSS", trusting(password("secret"))).await
}

/// Fails unless each server refuses the client with such an error, and returns what caused the
/// errors. It tries again if nats-server has closed the connection before the client wrote all:
/// then the client reads nothing.
async fn refused(
    urls: &[&str],
    options: impl Fn() -> Result<ConnectOptions>,
    kind: ConnectErrorKind,
) -> Result<String> {
    let mut causes = String::new();
    for url in urls {
        let mut tries = 0;
        let err = loop {
            let Err(err) = options()?.connect(variable(url)).await else {
                return Err(format!("no error at {url}").into());
            };
            tries += 1;
            if tries == 5 || err.kind() == kind || err.kind() != ConnectErrorKind::Io {
                break err;
            }
        };
        assert_eq!(err.kind(), kind, "{url}: {err:?}");
        causes += &format!("{err:?}\n");
    }
    Ok(causes)
}

const ALL: &[&str] = &["PLAIN", "TLS", "WS", "WSS"];

pub async fn wrong_password(_: &Site) -> Result {
    refused(ALL, || Ok(trusting(password("wrong"))), ConnectErrorKind::AuthorizationViolation).await?;
    Ok(())
}

pub async fn wrong_nkey(_: &Site) -> Result {
    refused(ALL, || Ok(trusting(nkey("stranger.nk")?)), ConnectErrorKind::AuthorizationViolation).await?;
    Ok(())
}

pub async fn nobody(_: &Site) -> Result {
    refused(ALL, || Ok(trusting(options())), ConnectErrorKind::AuthorizationViolation).await?;
    Ok(())
}

pub async fn wrong_ca(_: &Site) -> Result {
    let other = || Ok(password("secret").add_root_certificates(identity("other-ca.crt")));
    for url in ["TLS", "WSS"] {
        let cause = refused(&[url], other, ConnectErrorKind::Io).await?;
        assert!(cause.contains("UnknownIssuer"), "{cause}");
    }
    Ok(())
}

/// With TLS 1.3 a client is refused behind its handshake: it reads the alert, or writes in vain.
pub async fn wrong_client_certificate(_: &Site) -> Result {
    refused(&["MTLS"], || Ok(certificate("stranger")), ConnectErrorKind::Io).await?;
    refused(&["MTLS"], || Ok(trusting(options())), ConnectErrorKind::Io).await?;
    Ok(())
}
