package pgtest

import (
	"fmt"
	"os"
)

// Join prints the address of the server that this run's test processes share, and returns
// the exit code.
func Join() int {
	address, err := joinRun()
	fmt.Fprintln(os.Stdout, address, err)
	return 0
}
