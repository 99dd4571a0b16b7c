package metrics

// Type is the type of a metric.
type Type string

// The types of metrics.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Metric describes one metric.
type Metric struct {
	Name string
	Type Type
	// Labels are the names of the labels, in the order of the label values.
	Labels []string
	Help   string
}

// table lists the metrics in the order of their declaration.
var table []Metric //nolint:gochecknoglobals // see below

// Table returns the metrics in the order of their declaration. It does not contain the
// metrics of the Go runtime and the process.
func Table() []Metric { return table }

func counter(name, help string, labels ...string) string { return metric(name, Counter, labels, help) }

func gauge(name, help string, labels ...string) string { return metric(name, Gauge, labels, help) }

func histogram(name, help string, labels ...string) string {
	return metric(name, Histogram, labels, help)
}

// metric adds a metric to the table and returns its name.
func metric(name string, kind Type, labels []string, help string) string {
	table = append(table, Metric{name, kind, labels, help})
	return name
}

// Each variable is the name of a metric, with its help and labels: counters of all kinds,
// counters of one kind's statistics, and gauges, which are read on each scrape.
//
//nolint:gochecknoglobals // Prometheus's own metrics are declared in the same way.
var (
	runs = counter("sexton_runs_total",
		"Runs that ended in this process, by outcome: done, over_limit, skipped, failed.", "kind", "database",
		"outcome")
	runDuration = histogram("sexton_run_duration_seconds", "Duration of runs in this process, without skipped ones.",
		"kind", "database")
	cleanUpLatency = histogram("sexton_clean_up_latency_seconds",
		"Time from a deletion to the end of its cleanup in this process.", "kind", "database")
	leaseSkips = counter("sexton_lease_skips_total", "Runs skipped because another worker holds the lease.", "kind",
		"database")
	runErrors = counter("sexton_errors_total",
		"Errors of runs. Without table, the run failed. Without SQLSTATE, the server did not report the error.", "kind",
		"database", "table", "sqlstate")

	Deletions = counter("sexton_loose_foreign_key_deletions_total", "Rows deleted, by child table.", "database",
		"table")
	Updates = counter("sexton_loose_foreign_key_updates_total", "Rows updated, by child table.", "database",
		"table")
	ProcessedRecords = counter("sexton_loose_foreign_key_processed_deleted_records_total",
		"Tombstones finished, by parent table.", "database", "table")
	RevivedRecords = counter("sexton_loose_foreign_key_revived_deleted_records_total",
		"Tombstones whose parent row exists again, by parent table. Its children are kept.", "database",
		"table")
	RescheduledRecords = counter("sexton_loose_foreign_key_rescheduled_deleted_records_total",
		"Tombstones deferred, by parent table.", "database", "table")
	IncrementedRecords = counter("sexton_loose_foreign_key_incremented_deleted_records_total",
		"Tombstones that failed and remain due, by parent table.", "database", "table")
	ConfirmedRecords = counter("sexton_loose_foreign_key_confirmed_deleted_records_total",
		"Finished tombstones that were rechecked for children.", "database")
	LateChildren = counter("sexton_loose_foreign_key_late_children_total",
		"Children that a recheck found.", "database")
	apdex = counter("sexton_sli_loose_foreign_key_clean_ups_apdex_total", "Cleanup runs that did not fail.",
		"database")
	apdexSuccess = counter("sexton_sli_loose_foreign_key_clean_ups_apdex_success_total",
		"Cleanup runs that ended under their limits and were not held.", "database")
	sliTotal = counter("sexton_sli_loose_foreign_key_clean_ups_total", "Cleanup runs, without skipped ones.",
		"database")
	sliError = counter("sexton_sli_loose_foreign_key_clean_ups_error_total", "Cleanup runs that failed.", "database")

	GhostUsersDestroyed = counter("sexton_ghost_users_destroyed_total", "Users deleted.", "database")
	GhostUsersFailed    = counter("sexton_ghost_users_failed_total", "Users deferred with an error.", "database")
	GhostMoved          = counter("sexton_ghost_user_moved_rows_total",
		"Rows moved to the ghost user, by table.column.", "database", "table")
	GhostDeleted = counter("sexton_ghost_user_deleted_rows_total",
		"Rows deleted with their user, by table.column.", "database", "table")
	GhostNullified = counter("sexton_ghost_user_nullified_rows_total",
		"Rows whose reference to the user was set to NULL, by table.column.", "database", "table")
	GhostBacklogAlerts = counter("sexton_ghost_users_backlog_alerts_total",
		"Runs that ended with more than 1,000 pending users, deferred ones included.", "database")
	GhostErrorAlerts = counter("sexton_ghost_users_error_alerts_total",
		"Runs of 10 or more users in which more than a tenth failed.", "database")

	PlaceholdersScheduled = counter("sexton_placeholder_users_scheduled_total",
		"Attempts at placeholder users, each with a job.", "database")
	PlaceholdersFinal = counter("sexton_placeholder_users_final_attempts_total",
		"Last attempts at placeholder users.", "database")
	PlaceholdersQueued = counter("sexton_placeholder_users_queued_total",
		"Placeholder users without references, queued for deletion.", "database")
	PlaceholdersKept = counter("sexton_placeholder_users_kept_total",
		"Placeholder users kept because rows refer to them.", "database")
	PlaceholderReferences = counter("sexton_placeholder_user_references_total",
		"References that keep placeholder users, by table.column.", "database", "table")

	GroupsEnqueued = counter("sexton_adjourned_groups_enqueued_total",
		"Due groups for which a job group_destroy was inserted.", "database")
	GroupsRestored = counter("sexton_adjourned_groups_restored_total",
		"Due groups restored because their requester may no longer remove them.", "database")
	GroupsFailed = counter("sexton_adjourned_groups_failed_total", "Due groups deferred with an error.",
		"database")
	GroupsDestroyed     = counter("sexton_groups_destroyed_total", "Groups deleted, sub-groups included.", "database")
	ProjectsDestroyed   = counter("sexton_projects_destroyed_total", "Projects deleted with their group.", "database")
	GroupDestroysFailed = counter("sexton_group_destroys_failed_total",
		"Runs that failed to continue the deletion of a group.", "database")
	GroupDeleted = counter("sexton_group_deleted_rows_total", "Rows deleted with a group, by table.", "database",
		"table")

	DiffsMoved     = counter("sexton_external_diffs_moved_total", "Diffs moved to object storage.", "database")
	DiffBytesMoved = counter("sexton_external_diff_moved_bytes_total", "Bytes of moved diffs.",
		"database")
	DiffsSkipped = counter("sexton_external_diffs_skipped_total", "Diffs left in the database, by reason.",
		"database", "reason")
	DiffObjectsRemoved = counter("sexton_external_diff_objects_removed_total",
		"Objects of deleted and restored diffs that were removed.", "database")

	RetentionDeleted = counter("sexton_retention_deleted_rows_total",
		"Rows deleted by retention rules, with rows below them, by table.", "database", "table")
	RetentionPartlyCleared = counter("sexton_retention_partly_cleared_rows_total",
		"Rows that changed while rows below them were deleted, and were kept.", "database")

	Up = gauge("sexton_up",
		"1 if the database answers and accepts writes. A database that does not answer has no other gauge.", "database")
	ScrapeComplete = gauge("sexton_scrape_complete", "1 if all gauges of the database were read in time.",
		"database")
	ReloadFailed = gauge("sexton_reload_failed",
		"1 if the last reload was refused because the configuration or definitions were invalid.")
	BacklogRows = gauge("sexton_backlog_rows",
		"Pending rows of a deletion table, deferred ones included.", "database", "deletion_table")
	BacklogCapped = gauge("sexton_backlog_capped", "1 if there are more rows than were counted.", "database",
		"deletion_table")
	BacklogOldest = gauge("sexton_backlog_oldest_age_seconds",
		"Age of the oldest row at the head of a queue, 0 if none is pending.", "database", "deletion_table")
	BacklogDeferred = gauge("sexton_backlog_deferred_rows",
		"Rows that failed and are deferred.", "database", "deletion_table")
	BacklogConfirming = gauge("sexton_backlog_confirming_rows",
		"Finished rows that wait for a recheck. They are not backlog.", "database", "deletion_table")
	ParentRows = gauge("sexton_backlog_parent_rows",
		"Pending tombstones of one parent table, up to 1,000. Absent if none is pending.", "database", "parent_table")
	ParentOldest = gauge("sexton_backlog_parent_oldest_age_seconds",
		"Age of the tombstone at the head of one parent table's queue. Absent if none is pending.", "database", "parent_table")
	BacklogUndefined = gauge("sexton_backlog_undefined_tables", "Parent tables with pending rows and no definition.",
		"database", "deletion_table")
	BacklogGivenUp = gauge("sexton_backlog_given_up_rows",
		"Rows that have used all attempts.", "database", "deletion_table")
	UndoBytes = gauge("sexton_undo_bytes", "Size of the rows kept for undo.", "database")
	UndoLimit = gauge("sexton_undo_limit_bytes",
		"Size above which rows are not kept or deletions wait. Absent without a limit.", "database")
	UndoAge           = gauge("sexton_undo_oldest_age_seconds", "Age of the oldest kept deletion.", "database")
	GroupsAdjourned   = gauge("sexton_groups_adjourned", "Marked groups whose period has not ended.", "database")
	GroupsDestroying  = gauge("sexton_groups_destroying", "Groups whose destruction has begun.", "database")
	GroupsStuck       = gauge("sexton_groups_stuck", "Groups whose deletion has failed 5 times or more.", "database")
	GroupsUnscheduled = gauge("sexton_groups_unscheduled",
		"Marked groups without a schedule, which are never deleted.", "database")
	Waiting = gauge("sexton_waiting",
		"1 for the reason that a job with pending work does not run, 0 for all other reasons.", "kind", "database", "reason")
	Running = gauge("sexton_running", "1 while a run is in progress, in any process.", "kind", "database")
	Duty    = gauge("sexton_duty_ratio",
		"Share of time in which the current run works. Absent without a run or target.", "kind", "database")
	LastSuccess = gauge("sexton_last_success_timestamp_seconds",
		"End of the last run that did not fail and was not held. 0 if there is none among the last 10,000 runs.",
		"kind", "database")
	SuccessDue = gauge("sexton_success_due_timestamp_seconds",
		"Third tick after the last success, or after the queue was created. After this time, an alert fires.", "kind", "database")
	Paused    = gauge("sexton_paused", "1 if the kind's queue is paused.", "kind")
	QueueJobs = gauge("sexton_queue_jobs", "Jobs in the kind's queue, by state.", "kind", "state")
	Workers   = gauge("sexton_workers", "Workers with a recent heartbeat.")
	Listener  = gauge("sexton_listener",
		"1 for the state of this process's listener (listening, polling, disconnected), else 0.", "kind", "database",
		"state")
	NotifyQueueUsage = gauge("sexton_notify_queue_usage_ratio",
		"Used share of the server's notification queue. If it is full, commits that notify fail.", "database")
	ReplicaLag = gauge("sexton_replica_lag_seconds",
		"Replay lag of a connected standby. Absent without pg_read_all_stats.", "database", "replica")
	ReplicaLagBytes = gauge("sexton_replica_lag_bytes", "Write-ahead log that a connected standby has not replayed.",
		"database", "replica")
	buildInfo = gauge("sexton_build_info", "Always 1. The versions are in the labels.", "version", "go_version",
		"river_version")
)
