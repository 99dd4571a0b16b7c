package exampleapp

import "github.com/jackc/pgx/v5"

// chunkRows limits the rows of one INSERT. 10,000 rows take about 0.1 s, so that progress
// is reported often and a canceled load ends soon.
const chunkRows = 10_000

// step is one file of data with its table.
type step struct {
	// file is the name of the SQL file without the extension .sql.
	file  string
	table string
	rows  int64
	// updates reports that the file changes rows of an earlier step and inserts none.
	updates bool
}

// plan lists the steps of a load, each table after the tables that it refers to.
type plan []step

// fewestGroups, fewestProjects and fewestUsers are minimums that the SQL files require: a
// second group to share with, a project for each label and milestone, and more people
// than any project has members.
const (
	fewestGroups   = 4
	fewestProjects = 4
	fewestUsers    = 5
)

// newPlan returns a plan that distributes about the given number of rows over the tables,
// with at least one row in each table.
func newPlan(rows int64) plan {
	of := func(perMillion, atLeast int64) int64 { return max(atLeast, (rows*perMillion+500_000)/1_000_000) }
	exactly := func(table string, rows int64) step { return step{file: table, table: table, rows: rows} }
	some := func(table string, perMillion int64) step { return exactly(table, of(perMillion, 1)) }
	mergeRequests := of(15_000, 1)
	diffs := parts(mergeRequests)
	return plan{
		exactly("organizations", 1),
		exactly("application_settings", 1),
		exactly("users", of(5_000, fewestUsers)),
		exactly("namespaces", of(5_000, fewestUsers)),
		some("keys", 2_500),
		some("emails", 2_500),
		some("personal_access_tokens", 2_000),
		some("identities", 2_000),
		some("abuse_reports", 300),
		exactly("groups", of(1_000, fewestGroups)),
		some("group_group_links", 100),
		exactly("projects", of(2_000, fewestProjects)),
		exactly("members", of(6_000, 3*fewestGroups)),
		some("group_deletion_schedules", 40),
		some("achievements", 200),
		some("user_achievements", 1_000),
		some("labels", 2_500),
		some("milestones", 1_000),
		some("issues", 20_000),
		some("issue_assignees", 8_000),
		exactly("merge_requests", mergeRequests),
		exactly("merge_request_metrics", mergeRequests),
		some("merge_request_assignees", 8_000),
		some("merge_request_reviewers", 8_000),
		exactly("merge_request_diffs", diffs),
		exactly("merge_request_diff_files", parts(diffs)),
		some("approvals", 4_000),
		some("reviews", 3_000),
		some("resource_label_events", 8_000),
		some("resource_state_events", 8_000),
		some("timelogs", 4_000),
		some("award_emoji", 15_000),
		some("subscriptions", 3_000),
		some("snippets", 1_000),
		some("releases", 1_000),
		some("notes", 150_000),
		some("todos", 100_000),
		some("events", 100_000),
		some("ci_pipelines", 20_000),
		{file: "merge_requests_heads", table: "merge_requests", rows: mergeRequests, updates: true},
		some("p_ci_builds", 300_000),
		some("ci_job_artifacts", 16_000),
		some("web_hooks", 1_000),
		some("web_hook_logs", 100_000),
		some("uploads", 3_000),
		some("packages_packages", 2_000),
		some("packages_package_files", 4_000),
		some("deploy_keys", 500),
		some("deploy_tokens", 500),
		some("import_placeholder_user_details", 200),
		some("import_source_users", 133),
		some("import_source_user_placeholder_references", 300),
	}
}

// parts returns the number of parts of the given number of wholes. Wholes 4, 8, 12 and so
// on have three parts each, and the other wholes have one part each. pg_temp.whole and
// pg_temp.part calculate the same mapping in SQL.
func parts(wholes int64) int64 { return wholes + wholes/4*2 }

// total returns the number of rows that the plan inserts.
func (p plan) total() int64 {
	var sum int64
	for _, s := range p.tables() {
		sum += s.rows
	}
	return sum
}

// tables returns the steps that insert rows, one for each table.
func (p plan) tables() plan {
	var made plan
	for _, s := range p {
		if !s.updates {
			made = append(made, s)
		}
	}
	return made
}

// counts returns the arguments of all files: the number of rows of each table, and the
// number of users who are people.
func (p plan) counts() pgx.NamedArgs {
	rows := map[string]int64{}
	args := pgx.NamedArgs{}
	for _, s := range p.tables() {
		rows[s.table] = s.rows
		args[s.table] = s.rows
	}
	args["people"] = rows["users"] - rows["import_placeholder_user_details"]
	return args
}
