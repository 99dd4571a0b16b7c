package run

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// dropPages takes pages of the program's file out of the process: its start reads most of them, and work afterwards a tenth. What is read again comes
// from the system's cache. A mapping that the process has changed stays as it is.
func dropPages() {
	program, err := os.Executable()
	if err != nil {
		return
	}
	mappings, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	var from, to uintptr
	for line := range strings.Lines(string(mappings)) {
		switch fields := strings.Fields(line); {
		case fields[0] == "Anonymous:" && fields[1] == "0" && to > from:
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED)
		case strings.HasSuffix(fields[0], ":"):
		default:
			from, to = 0, 0
			if len(fields) > 5 && fields[5] == program && (fields[1] == "r-xp" || fields[1] == "r--p") {
				_, _ = fmt.Sscanf(fields[0], "%x-%x", &from, &to)
			}
		}
	}
}
