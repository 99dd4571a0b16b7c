package yamlfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
)

// ReadFile reads a file that a person names. Its errors do not repeat the path.
func ReadFile(path string) ([]byte, error) { return ReadStart(path, math.MaxInt64) }

// ReadStart is ReadFile for the first bytes only. A named pipe in the place of a file is
// refused: opening one waits for a writer. The process's own descriptors, such as
// /dev/stdin and a shell's <(…), are pipes on purpose, and open already.
func ReadStart(path string, most int64) ([]byte, error) {
	data, err := readStart(path, most)
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return data, err
}

func readStart(path string, most int64) ([]byte, error) {
	about, err := os.Stat(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // The caller says what it reads.
	}
	onPurpose := path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/")
	if about.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 && !onPurpose {
		kind := "named pipe"
		if about.Mode()&fs.ModeSocket != 0 {
			kind = "socket"
		}
		return nil, fmt.Errorf("is a %s, which may never have anything to read; put a regular file there, or name /dev/stdin", kind)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // As above.
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most)) //nolint:wrapcheck // As above.
}
