//go:build !linux

package main

import "syscall"

// devProcess gives brokers a process group of their own, so that Ctrl-C reaches the command, which
// stops them. No system but Linux kills a process with the one that started it: if the command
// itself is killed, its brokers stay, and the next command for the same data says so instead of
// starting.
func devProcess() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
