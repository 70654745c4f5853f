// Package inventory knows which logs are on a broker's disk. It sets logs aside for people to look
// at, and settles what becomes of logs of Topics that the cluster does not know.
//
// It is an index of names beside the disk. Its user (package topic) opens, closes and deletes the
// logs of the Topics that the cluster knows, and notes here which there are.
//
// # Invariants
//
//	I1  A log without a Topic is deleted only if it is proven that its Topic was deleted. It is set
//	    aside otherwise, and left where it is while a Topic of its id exists.
//	I2  Nothing is settled while a Topic's key in etcd can't be read.
//	I3  A log is noted as gone before it is deleted or set aside: if a restored etcd has its Topic
//	    again, the log is missing.
//
// When the process dies, the names are read from the disk again. A log that was being deleted or
// set aside is there or it isn't (package log); the next process settles it anew.
package inventory
