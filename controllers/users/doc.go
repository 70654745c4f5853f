// Package users writes the users of Brokers with spec.auth.users to their etcd: names, verifiers
// and permissions from Secrets of the type carillon.dev/user, and never a secret.
//
// A pass reads the Secrets from a cache that has no others, decides purely which users there are
// (decide), and writes the set if it differs from the one in etcd. Its result goes to the pass over
// the Broker, which writes the status.
//
//	A1  A wrong Secret takes no other user away. Of two Secrets with one name or credential, the
//	    older one is right.
//	A2  A pass computes a bounded number of password hashes, and another pass follows. Until the
//	    turn of a Secret comes, the verifiers in etcd hold that may be of its passwords; a new user
//	    without any is left out.
//	A3  A password whose verifier is in etcd is not hashed again, so a converged Broker costs no
//	    write. Etcd has a digest of the version of the Secret and of its verifiers: as long as it is
//	    right, the verifiers are not compared either. Those that a pass made are remembered while
//	    etcd does not have them, so a refused Secret, or a failed write, costs no other hashes.
//	A4  No condition, event or log shows a value of a Secret.
//	A5  What a pass takes away is written before other users have their turns: users and rights that
//	    are gone, and verifiers that are known to be of no password any more. The process that made
//	    or compared a verifier remembers of which password it is; another process compares the
//	    verifiers of changed Secrets before it hashes anything. So a loss waits for the pass under
//	    way and for its own comparisons, and for no new user.
//	A6  Then the new passwords of changed Secrets have turns, then new users, and last those whose
//	    verifiers the process knows nothing of. Each of the last two has a quarter of a pass while
//	    they wait. In each group, a Secret that changes again goes behind those that wait.
//
// When the process dies, the next one compares the passwords with those verifiers, in turns, whose
// Secrets have changed or are not noted. If it dies while it writes a set, that part has verifiers
// that brokers hold, so they are kept, too.
//
// What this does not cover: versions of Secrets repeat if the etcd of Kubernetes is restored from a
// backup. A Secret that has the version then that another content had keeps the verifiers of that,
// until it is changed again.
package users
