//! What applications rely on, through async-nats: tour nats://127.0.0.1:4222 [nats://second:4222]
//! or tour --connect
//!
//! Prints one line per story; the exit status is 0 only if all hold. With a second URL of the same
//! cluster, the stories run between the two nodes. With --connect, they are those of connecting.rs.

mod connecting;
mod consumers;
mod core;
mod objects;
mod site;
mod streams;
mod values;

use site::Site;
use std::process::exit;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() {
    let urls: Vec<String> = std::env::args().skip(1).collect();
    let [first, second] = match urls.as_slice() {
        [one] => [one, one],
        [one, two] => [one, two],
        _ => {
            eprintln!("usage: tour URL [URL of another node], or --connect");
            exit(2)
        }
    };
    let (mut told, mut failed) = (0, 0);
    macro_rules! tell {
        ($($chapter:ident::$story:ident),* $(,)?) => {$(
            told += 1;
            let site = Site::new(first, second);
            // A task of its own, so that a failed assertion ends one story.
            let story = tokio::spawn(async move { $chapter::$story(&site).await });
            let abort = story.abort_handle();
            let trouble = match tokio::time::timeout(PATIENCE, story).await {
                Ok(Ok(Ok(()))) => None,
                Ok(Ok(Err(err))) => Some(format!("{err}")),
                Ok(Err(err)) => Some(format!("{err}")),
                Err(_) => Some(format!("no end after {PATIENCE:?}")),
            };
            abort.abort();
            match trouble {
                None => println!("ok   {}", stringify!($story)),
                Some(trouble) => {
                    failed += 1;
                    println!("FAIL {}\n{trouble}", stringify!($story));
                }
            }
        )*};
    }
    if first == "--connect" {
        tell!(
            connecting::user_and_password,
            connecting::user_and_password_over_tls,
            connecting::nkey_user,
            connecting::nkey_over_tls,
            connecting::client_certificate,
            connecting::websocket,
            connecting::websocket_with_nkey,
            connecting::websocket_over_tls,
            connecting::wrong_password,
            connecting::wrong_nkey,
            connecting::nobody,
            connecting::wrong_ca,
            connecting::wrong_client_certificate,
        );
    } else {
        tell!(
            core::publish_and_subscribe,
            core::request_and_reply,
            core::nobody_answers,
            core::message_headers,
            core::queue_group,
            streams::streams,
            streams::expectations,
            streams::direct_gets,
            consumers::pull_consumers,
            consumers::push_consumers,
            consumers::ordered_consumers,
            values::keys_and_values,
            values::watched_keys,
            objects::object_store,
            objects::watched_objects,
            objects::sealed_object_store,
        );
    }
    println!("{} of {told} hold", told - failed);
    exit(if failed > 0 { 1 } else { 0 })
}
