// Package roots tests the CAs of a Broker's processes, and the users of its etcd, with real
// coordinators and brokers, in one process, and with the certificates that the operator makes:
//
//  1. A certificate for one kind of connections is refused by the listeners of the others.
//  2. A cluster changes from one CA for everything to a CA for each kind. After every step, and
//     while its files have reached some of the processes only, restarted coordinators find their
//     quorum, and restarted brokers etcd and each other.
//  3. etcd gets users and asks for them, under load and without a lost record. Each user may do
//     its work and nothing else. A coordinator that lost its volume rejoins.
//  4. A restored etcd has the users of its backup: of before there were any, or of after. There the
//     coordinators are processes of the command, all of which stop under their clients.
package roots
