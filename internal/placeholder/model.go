// Package placeholder cleans up the users that imports have made to stand for people of another server.
//
// Each has a row in import_placeholder_user_details, which loses its namespace when the group that was imported into goes.
// From then on no user will take the placeholder's work over, and it may be deleted. Engine.Run looks at many in one statement. Those
// that rows refer to stay, and their rows say what keeps them, until they are looked at again after some days. The others it offers one
// after the other: it counts an attempt in one transaction with the job that it inserts. That job, Remover.Remove, looks again under a
// lock on the user, and has it enter the queue of the users to be deleted, which is another job's.
//
// All that is known stands in the database. An attempt that offers a user is a job that was inserted: a worker that is killed anywhere
// has counted neither an attempt without a job nor a job without an attempt.
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
