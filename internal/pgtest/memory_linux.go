package pgtest

import (
	"os"
	"syscall"
)

const (
	memory = "/dev/shm"
	// memoryNeeded is more than the servers of a run ever take at a time.
	memoryNeeded = 3 << 30
	// What statfs(2) and access(2) call a file system in memory, one that runs no
	// programs, and the wish to write.
	tmpfs, noExec, write = 0x01021994, 0x8, 2
)

// useMemory puts temporary folders into memory if the machine has enough of it and TMPDIR is
// not set. On a disk the tests spend more than half of their time on files.
func useMemory() {
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") == "" && syscall.Statfs(memory, &fs) == nil && fs.Type == tmpfs && fs.Flags&noExec == 0 &&
		fs.Bavail*uint64(fs.Bsize) >= memoryNeeded && syscall.Access(memory, write) == nil {
		_ = os.Setenv("TMPDIR", memory) // Only a wrong name is an error.
	}
}
