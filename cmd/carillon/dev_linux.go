package main

import "syscall"

// devProcess makes the system kill a broker when the command that started it ends. Brokers have a
// process group of their own, so Ctrl-C reaches the command only, which stops them.
func devProcess() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
