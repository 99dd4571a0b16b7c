package loosefk

import (
	"errors"

	"sexton/internal/fault"
)

// judge says what an error means for the tombstones in hand, of a statement on a table or of what kept it from being sent.
func judge(err error, table string) fault.Fault {
	f := fault.Judge(err)
	if trouble, ok := errors.AsType[*troubleError](err); ok {
		f = trouble.failure
	}
	f.Table = table
	return f
}
