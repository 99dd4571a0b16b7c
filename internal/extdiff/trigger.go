package extdiff

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
)

// TriggerName is the trigger on diffs that queues the objects of deleted ones.
const TriggerName = "sexton_external_diffs_removed"

// TriggerState is how that trigger stands.
type TriggerState string

// The states.
const (
	TriggerActive   TriggerState = "active"
	TriggerMissing  TriggerState = "missing"
	TriggerDisabled TriggerState = "disabled"
)

// ReadTrigger looks at the trigger.
func ReadTrigger(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names) (TriggerState, error) {
	var fires bool
	err := db.QueryRow(ctx, names.Render(statement("trigger")), TriggerName).Scan(&fires)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return TriggerMissing, nil
	case err != nil:
		return "", fmt.Errorf("look at the trigger of deleted diffs: %w", err)
	case !fires:
		return TriggerDisabled, nil
	}
	return TriggerActive, nil
}

// TriggerFix is the SQL that makes the trigger active again, to be rendered for the configured schemas.
func TriggerFix(state TriggerState) string {
	const enable = `ALTER TABLE "public".merge_request_diffs ENABLE ALWAYS TRIGGER ` + TriggerName
	if state == TriggerDisabled {
		return enable
	}
	return `CREATE TRIGGER ` + TriggerName + ` AFTER DELETE ON "public".merge_request_diffs REFERENCING OLD TABLE AS sexton_removed` +
		` FOR EACH STATEMENT EXECUTE FUNCTION "sexton".external_diffs_removed(); ` + enable
}
