//go:build !linux

package main

import "syscall"

// devProcess gives brokers a process group of their own, so Ctrl-C reaches the command only, which
// stops them. Only Linux kills a process with its parent: elsewhere the brokers of a killed command
// continue, and the next command for the same data refuses to start.
func devProcess() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
