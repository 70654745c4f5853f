package world

import (
	"fmt"
	"syscall"
)

// worldMemory bounds the address space of a world's process. A world needs some 300 MiB; one that
// loops would take the machine's memory.
const worldMemory = 4 << 30

// boundWorld ends this process, with the stacks of its goroutines, if it takes too much memory, and
// when its parent process ends.
func boundWorld() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: worldMemory, Max: worldMemory}); err != nil {
		return fmt.Errorf("bound the memory of a world: %w", err)
	}
	const setParentDeathSignal = 1 // PR_SET_PDEATHSIG
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setParentDeathSignal, uintptr(syscall.SIGKILL), 0); errno != 0 {
		return fmt.Errorf("have a world end with its parent: %w", errno)
	}
	return nil
}
