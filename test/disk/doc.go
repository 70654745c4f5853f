// Package disk makes file systems for tests that can lose their power, fail and fill up: ext4 on
// loop devices. It takes root on Linux. Package disk keeps nothing but the images, which Remove
// deletes; the devices go with their mounts.
package disk
