package pgtest

import (
	"fmt"
	"os"
)

// Join is a test process that asks for the server of its run and ends.
func Join() int {
	address, err := joinRun()
	fmt.Fprintln(os.Stdout, address, err)
	return 0
}
