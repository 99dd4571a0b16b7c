package extdiff

import "fmt"

// Rule says which diffs leave the database.
type Rule string

// The rules: all diffs; or those of merge requests that were merged or closed more than 7 days ago, and all versions but the
// latest.
const (
	Always   Rule = "always"
	Outdated Rule = "outdated"
)

// inDatabaseSQL is written as the partial index that finds such diffs has it.
const inDatabaseSQL = `diff.files_count > 0 AND (NOT diff.stored_externally OR diff.stored_externally IS NULL)`

const keptSQL = `EXISTS (SELECT FROM "sexton".external_diffs AS ledger WHERE ledger.diff_id = diff.id AND ledger.kept)`

// outdatedSQL compares ids, as a version that has come in but is not the latest yet is not outdated.
const outdatedSQL = `EXISTS (
    SELECT
    FROM "public".merge_requests AS request
    LEFT JOIN "public".merge_request_metrics AS metrics ON metrics.merge_request_id = request.id
    WHERE request.id = diff.merge_request_id
      AND (
          request.state_id = 3 AND metrics.merged_at < (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC') - interval '7 days'
          OR request.state_id = 2 AND metrics.latest_closed_at < pg_catalog.statement_timestamp() - interval '7 days'
          OR diff.diff_type = 1 AND diff.id < request.latest_merge_request_diff_id
      )
)`

// refusedSQL holds for a diff that cannot be moved and has not changed since that was found. The scheduler leaves it out; a mover that
// is asked for it looks again. OFFSET 0 has it be one probe per diff.
const refusedSQL = `EXISTS (
    SELECT
    FROM "sexton".external_diffs AS ledger
    WHERE ledger.diff_id = diff.id
      AND ledger.skip_reason IS NOT NULL
      AND ledger.skip_state = coalesce(diff.files_count, 0)::pg_catalog.text OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) (
          SELECT ` + fingerprintSQL + ` FROM "public".merge_request_diff_files AS file WHERE file.merge_request_diff_id = diff.id
      )
    OFFSET 0
)`

// eligibleSQL is the one condition, on a diff, that scheduler and mover share.
func (r Rule) eligibleSQL() (string, error) {
	const always = inDatabaseSQL + " AND NOT " + keptSQL
	switch r {
	case Always:
		return always, nil
	case Outdated:
		return always + " AND " + outdatedSQL, nil
	default:
		return "", fmt.Errorf("move diffs: the rule %q is none of always, outdated", string(r))
	}
}
