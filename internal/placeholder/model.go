package placeholder

import (
	"time"
)

// DeleteKind is the kind of the jobs that are inserted, one per placeholder, with the argument user_id. It is frozen.
const DeleteKind = "import_delete_placeholder_user"

// Rules say when a placeholder is offered.
type Rules struct {
	// MaxAttempts is how often; the last attempt is announced.
	MaxAttempts int
	// RetryPeriod has to be over, not just reached, since the attempt before.
	RetryPeriod time.Duration
}

// Reference is a column that keeps a placeholder alive while a row has its id there. A table is "table", in the database's
// own schema, or "schema.table".
type Reference struct {
	Table   string
	Columns []string
}
