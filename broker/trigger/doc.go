// Package trigger decides which results of a view are worth an alert. A Trigger is a condition that
// raises, and one that clears; a Set has the state of each trigger and key. It is pure: no I/O, no
// clock.
//
//	trigger.go   Trigger: the compiled conditions
//	alert.go     Alert: a message of the output Topic, and the state after it
//	set.go       Set: judges results, and returns alerts
//
// # Hysteresis
//
//	state      condition that is judged       what makes an alert
//	cleared    when                           true: raised
//	raised     until; absent: when            until is true, or when is false: cleared
//
// One result makes one alert of a trigger at most.
//
// # Missing results
//
//  1. A function of no values has no result, as the mean of messages without the field. A condition
//     that needs it can't be judged: the state stays as it is, and the failure is counted.
//     "count > 5.0 || mean > 30.0" needs the mean only if the count does not decide.
//  2. No result is NaN: a function takes finite numbers only. A sum may be infinite, and compares
//     as such. What a condition itself computes may be NaN (0.0/0.0): all that compares with it is
//     false, but for !=. So a raised trigger without until clears then.
//  3. A key without messages has no window, so its state stays.
//  4. Numbers are doubles in conditions, counts too: readings / 2.0 > 10.0.
//
// # Invariants
//
//	T1  The state of a trigger and key is a function of its last alert and of the results since. So
//	    judging again from its last alert on gives the same alerts, and no other.
//	T2  The alerts of a trigger and key have the serial numbers 1, 2, 3 …, and raise and clear in
//	    turn. Message n is appended on condition that message n-1 is the last: each is there once.
//	T3  The results of a key are judged in the order of their ends. One that ends no later than its
//	    last alert is not judged again.
//	T4  Present values, which are no closed windows, are judged only if they were computed of at
//	    least the messages that the last alerts were computed of. Otherwise a shard whose new leader
//	    is still reading its log would clear what was raised before.
//	T5  Beyond the bound of states, judging returns an error, and nothing has changed. A state that
//	    is cleared and was never raised takes no memory.
//
// The process's death loses the Set. The next one restores it from the last alert of each trigger
// and key, and judges the results again whose windows were not acknowledged (broker/view).
package trigger
