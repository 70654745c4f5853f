// Package hostile attacks a broker, beside a bystander that it must not disturb, and judges how the
// bystander fared.
//
//	make test-hostile                           # as root on Linux; 1 to 3 hours
//	make test-hostile HOSTILE=fan-out           # some attacks: a regular expression
//	make test-hostile HOSTILE_TIME=3s           # of each measurement, instead of 10 s
//	make test-hostile HOSTILE_BROKERS=1         # 1 or 3, instead of both
//	make test-hostile HOSTILE_RUNS=1            # decide by one run, for a first look
//
// Broker, attacker and bystander are processes, each with a fixed share of the CPU by a cgroup of
// its own (share_test.go). The shares are the same in the undisturbed measurement and under attack.
// Together they are less than two CPUs, so figures mean something on an idle machine with two CPUs
// or more only. Three brokers and their coordinator share what one broker has. A broker has the
// profile small, with the memory limit and the settings of the Go runtime that the operator gives
// it.
//
// Each attack is one function (attacks_test.go lists them) and meets new brokers:
//
//  1. The bystander sends requests at a fixed rate from the first broker to a responder at the last
//     one, and publishes to a stream if the attack concerns streams. A latency counts from the time
//     at which the request was due. What is refused, or not answered, counts as late as the
//     measurement's end.
//  2. The bystander measures undisturbed, after a measurement of a fifth of the time that is
//     dropped: brokers that have just started are slower.
//  3. The attacker attacks the first broker, and the bystander measures again.
//  4. The attacker ends. The brokers have 30 s to give back their memory.
//  5. The same happens to nats-server, if it has the feature that is attacked.
//
// What is judged (judge.go):
//
//   - The p99 under attack is at most 5 times the undisturbed one, or nats-server's under the same
//     attack, whichever is more.
//   - The resident memory (VmHWM) of each broker stays inside the limit of the profile.
//   - Afterwards its resident memory (VmRSS) is at most 20 % more than before the attack.
//   - No broker's process ends. One that the attack has killed serves again.
//
// If a bound is broken, the attack is repeated twice, and the medians of the three runs are judged;
// a process that ends is judged in each run. The last lines are a table with a row per attack,
// number of brokers and kind of operation. "sent" and "refused" are what the attacker did and what
// was refused or disconnected. An attack that did nothing fails, since it shows nothing. The
// exit code is not 0 if a bound is broken.
//
// This suite measures, so it is not part of `make test` or `.ci/run`. The judge's own tests are.
package hostile
