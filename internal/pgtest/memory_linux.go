package pgtest

import (
	"os"
	"syscall"
)

const (
	memory = "/dev/shm"
	// memoryNeeded is the free space in bytes that useMemory requires. All servers of a
	// test run together stay below it.
	memoryNeeded = 3 << 30
	// tmpfs, noExec and write are the values of TMPFS_MAGIC, ST_NOEXEC and W_OK, which
	// statfs(2) and access(2) use.
	tmpfs, noExec, write = 0x01021994, 0x8, 2
)

// useMemory sets TMPDIR to a file system in memory if TMPDIR is not set and the machine
// has enough memory. On a disk the tests spend more than half of their time on files.
func useMemory() {
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") == "" && syscall.Statfs(memory, &fs) == nil && fs.Type == tmpfs && fs.Flags&noExec == 0 &&
		fs.Bavail*uint64(fs.Bsize) >= memoryNeeded && syscall.Access(memory, write) == nil {
		_ = os.Setenv("TMPDIR", memory) // Setenv fails only for invalid names.
	}
}
