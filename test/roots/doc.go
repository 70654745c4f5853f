// Package roots tests the CAs of a Broker's processes with real coordinators and brokers, in one
// process, and with the certificates that the operator makes:
//
//  1. A certificate for one kind of connections is refused by the listeners of the others.
//  2. A cluster changes from one CA for everything to a CA for each kind. After every step, and
//     while its files have reached some of the processes only, restarted coordinators find their
//     quorum, and restarted brokers etcd and each other.
package roots
