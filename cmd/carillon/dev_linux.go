package main

import "syscall"

// devProcess has the system kill a broker with the command that started it, whatever becomes of
// that. Brokers have a process group of their own, so that Ctrl-C reaches the command, which stops
// them.
func devProcess() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
