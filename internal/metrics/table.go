package metrics

// Type is a metric's type.
type Type string

// The types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Metric describes one metric.
type Metric struct {
	Name string
	Type Type
	// Labels are in the order in which values are given.
	Labels []string
	Help   string
}

// The names of counters that passes feed by their statistics.
const (
	Deletions          = "sexton_loose_foreign_key_deletions_total"
	Updates            = "sexton_loose_foreign_key_updates_total"
	ProcessedRecords   = "sexton_loose_foreign_key_processed_deleted_records_total"
	RevivedRecords     = "sexton_loose_foreign_key_revived_deleted_records_total"
	RescheduledRecords = "sexton_loose_foreign_key_rescheduled_deleted_records_total"
	IncrementedRecords = "sexton_loose_foreign_key_incremented_deleted_records_total"
	ConfirmedRecords   = "sexton_loose_foreign_key_confirmed_deleted_records_total"
	ConfirmedEarly     = "sexton_loose_foreign_key_confirmed_early_deleted_records_total"
	LateChildren       = "sexton_loose_foreign_key_late_children_deleted_records_total"

	GhostUsersDestroyed = "sexton_ghost_users_destroyed_total"
	GhostUsersFailed    = "sexton_ghost_users_failed_total"
	GhostMoved          = "sexton_ghost_user_moved_rows_total"
	GhostDeleted        = "sexton_ghost_user_deleted_rows_total"
	GhostNullified      = "sexton_ghost_user_nullified_rows_total"
	GhostBacklogAlerts  = "sexton_ghost_users_backlog_alerts_total"
	GhostErrorAlerts    = "sexton_ghost_users_error_alerts_total"

	PlaceholdersScheduled = "sexton_placeholder_users_scheduled_total"
	PlaceholdersFinal     = "sexton_placeholder_users_final_attempts_total"
	PlaceholdersQueued    = "sexton_placeholder_users_queued_total"
	PlaceholdersKept      = "sexton_placeholder_users_kept_total"
	PlaceholderReferences = "sexton_placeholder_user_references_total"

	GroupsEnqueued = "sexton_adjourned_groups_enqueued_total"
	GroupsRestored = "sexton_adjourned_groups_restored_total"
	GroupsFailed   = "sexton_adjourned_groups_failed_total"

	GroupsDestroyed     = "sexton_groups_destroyed_total"
	ProjectsDestroyed   = "sexton_projects_destroyed_total"
	GroupDestroysFailed = "sexton_group_destroys_failed_total"
	GroupDeleted        = "sexton_group_deleted_rows_total"
	DiffsMoved          = "sexton_external_diffs_moved_total"
	DiffBytesMoved      = "sexton_external_diff_moved_bytes_total"
	DiffsSkipped        = "sexton_external_diffs_skipped_total"
	DiffUploadsBroken   = "sexton_external_diff_uploads_broken_off_total"
	DiffUploadsResumed  = "sexton_external_diff_uploads_resumed_total"
	DiffObjectsRemoved  = "sexton_external_diff_objects_removed_total"
	DiffObjectsSwept    = "sexton_external_diff_objects_swept_total"
)

// The names of counters that every pass moves.
const (
	runs           = "sexton_runs_total"
	runDuration    = "sexton_run_duration_seconds"
	cleanUpLatency = "sexton_clean_up_latency_seconds"
	leaseSkips     = "sexton_lease_skips_total"
	runErrors      = "sexton_errors_total"

	apdex        = "sexton_sli_loose_foreign_key_clean_ups_apdex_total"
	apdexSuccess = "sexton_sli_loose_foreign_key_clean_ups_apdex_success_total"
	sliTotal     = "sexton_sli_loose_foreign_key_clean_ups_total"
	sliError     = "sexton_sli_loose_foreign_key_clean_ups_error_total"
)

// The names of gauges, which are read when they are asked for.
const (
	Up             = "sexton_up"
	ScrapeComplete = "sexton_scrape_complete"
	ReloadFailed   = "sexton_reload_failed"

	BacklogRows       = "sexton_backlog_rows"
	BacklogCapped     = "sexton_backlog_capped"
	BacklogOldest     = "sexton_backlog_oldest_age_seconds"
	BacklogDeferred   = "sexton_backlog_deferred_rows"
	BacklogConfirming = "sexton_backlog_confirming_rows"
	UndoBytes         = "sexton_undo_bytes"
	UndoLimit         = "sexton_undo_limit_bytes"
	UndoAge           = "sexton_undo_oldest_age_seconds"
	BacklogUndefined  = "sexton_backlog_undefined_tables"
	BacklogGivenUp    = "sexton_backlog_given_up_rows"
	ParentRows        = "sexton_backlog_parent_rows"
	ParentOldest      = "sexton_backlog_parent_oldest_age_seconds"

	Waiting     = "sexton_waiting"
	Running     = "sexton_running"
	Duty        = "sexton_duty_ratio"
	LastSuccess = "sexton_last_success_timestamp_seconds"
	SuccessDue  = "sexton_success_due_timestamp_seconds"
	Paused      = "sexton_paused"
	QueueJobs   = "sexton_queue_jobs"
	Workers     = "sexton_workers"

	GroupsAdjourned   = "sexton_groups_adjourned"
	GroupsDestroying  = "sexton_groups_destroying"
	GroupsStuck       = "sexton_groups_stuck"
	GroupsUnscheduled = "sexton_groups_unscheduled"

	Listener         = "sexton_listener"
	NotifyQueueUsage = "sexton_notify_queue_usage_ratio"
	ReplicaLag       = "sexton_replica_lag_seconds"
	ReplicaLagBytes  = "sexton_replica_lag_bytes"

	buildInfo = "sexton_build_info"
)

// Table lists the metrics, in the order of the documentation. Those of the Go runtime and the process come on top.
func Table() []Metric {
	return []Metric{
		{runs, Counter, []string{"kind", "database", "outcome"}, "Runs that ended in this process, by outcome: done, over_limit, skipped or failed."},
		{runDuration, Histogram, []string{"kind", "database"}, "Duration of runs in this process, without skipped ones."},
		{cleanUpLatency, Histogram, []string{"kind", "database"}, "Time from a deletion to the end of its clean-up, of what runs of this process finished."},
		{leaseSkips, Counter, []string{"kind", "database"}, "Runs skipped because another worker holds the lease."},
		{runErrors, Counter, []string{"kind", "database", "table", "sqlstate"}, "Errors of runs; no table: of the whole run; no SQLSTATE: not the server's."},

		{Deletions, Counter, []string{"database", "table"}, "Rows deleted, by child table."},
		{Updates, Counter, []string{"database", "table"}, "Rows updated, by child table."},
		{ProcessedRecords, Counter, []string{"database", "table"}, "Tombstones finished, by parent table."},
		{RevivedRecords, Counter, []string{"database", "table"}, "Tombstones whose row lives under its key, so that its children stay, by parent table."},
		{RescheduledRecords, Counter, []string{"database", "table"}, "Tombstones put off to a later time, by parent table."},
		{IncrementedRecords, Counter, []string{"database", "table"}, "Tombstones that failed and stay due, by parent table."},
		{ConfirmedRecords, Counter, []string{"database"}, "Finished tombstones that a second look found without children."},
		{ConfirmedEarly, Counter, []string{"database"}, "Finished tombstones that were confirmed although older transactions were still open."},
		{LateChildren, Counter, []string{"database"}, "Finished tombstones that came back because a child had come late."},
		{apdex, Counter, []string{"database"}, "Runs of the loose foreign keys clean-up that did not fail."},
		{apdexSuccess, Counter, []string{"database"}, "Those of them that ended under their limits and were not kept from all of their work."},
		{sliTotal, Counter, []string{"database"}, "Runs of the loose foreign keys clean-up, without skipped ones."},
		{sliError, Counter, []string{"database"}, "Those of them that failed."},

		{GhostUsersDestroyed, Counter, []string{"database"}, "Users deleted, whose contributions have passed to the ghost user."},
		{GhostUsersFailed, Counter, []string{"database"}, "Users put off with an error."},
		{GhostMoved, Counter, []string{"database", "table"}, "Rows that passed to the ghost user, by table.column."},
		{GhostDeleted, Counter, []string{"database", "table"}, "Rows deleted with their user, by table.column."},
		{GhostNullified, Counter, []string{"database", "table"}, "Rows that lost their user, by table.column."},
		{GhostBacklogAlerts, Counter, []string{"database"}, "Runs at whose end more than 1,000 users waited, put off ones included."},
		{GhostErrorAlerts, Counter, []string{"database"}, "Runs in which more than a tenth of the users failed, of 10 or more."},

		{PlaceholdersScheduled, Counter, []string{"database"}, "Placeholder users offered for deletion: attempts with a job."},
		{PlaceholdersFinal, Counter, []string{"database"}, "Last attempts of placeholder users, with a job or kept by references."},
		{PlaceholdersQueued, Counter, []string{"database"}, "Placeholder users that nothing referred to, queued for deletion."},
		{PlaceholdersKept, Counter, []string{"database"}, "Placeholder users kept because something refers to them."},
		{PlaceholderReferences, Counter, []string{"database", "table"}, "References that kept them, by table.column; one user may have several."},

		{GroupsEnqueued, Counter, []string{"database"}, "Due groups that were passed on for their destruction."},
		{GroupsRestored, Counter, []string{"database"}, "Due groups that were restored, as their requester may no longer remove them."},
		{GroupsFailed, Counter, []string{"database"}, "Due groups put off with an error."},
		{GroupsDestroyed, Counter, []string{"database"}, "Groups that are gone, sub-groups included."},
		{ProjectsDestroyed, Counter, []string{"database"}, "Projects that went with their group."},
		{GroupDestroysFailed, Counter, []string{"database"}, "Runs that something stood in the way of, as recorded with the group."},
		{GroupDeleted, Counter, []string{"database", "table"}, "Rows deleted with a group, by table."},

		{DiffsMoved, Counter, []string{"database"}, "Diffs whose texts were moved to object storage."},
		{DiffBytesMoved, Counter, []string{"database"}, "Bytes of those texts."},
		{DiffUploadsBroken, Counter, []string{"database"}, "Uploads in parts that were broken off since no byte moved, or the store was away."},
		{DiffUploadsResumed, Counter, []string{"database"}, "Diffs that were moved with parts of an earlier attempt."},
		{DiffsSkipped, Counter, []string{"database", "reason"}, "Diffs that were looked at and stay in the database, by reason."},
		{DiffObjectsRemoved, Counter, []string{"database"}, "Objects of deleted and restored diffs that were removed."},
		{DiffObjectsSwept, Counter, []string{"database"}, "Objects that no diff referred to and that were removed."},

		{Up, Gauge, []string{"database"}, "Whether the database answers. If not, it has no other gauge."},
		{ScrapeComplete, Gauge, []string{"database"}, "Whether all gauges of a database that answers could be read in time."},
		{ReloadFailed, Gauge, nil, "Whether the last reload found configuration or definitions that are wrong, so that the old ones stay."},
		{BacklogRows, Gauge, []string{"database", "deletion_table"}, "Rows that wait in a deletion table, put off ones included. Counting stops at 10,000."},
		{BacklogCapped, Gauge, []string{"database", "deletion_table"}, "Whether there are more rows than were counted."},
		{BacklogOldest, Gauge, []string{"database", "deletion_table"}, "Age of the oldest row at the head of a parent table's queue, 0 where none waits."},
		{BacklogDeferred, Gauge, []string{"database", "deletion_table"}, "Rows that failed before and are put off. Counting stops at 10,000."},
		{BacklogConfirming, Gauge, []string{"database", "deletion_table"}, "Finished rows that wait for a second look; no backlog. Counting stops at 10,000."},
		{ParentRows, Gauge, []string{"database", "parent_table"}, "Tombstones that wait for one parent table, up to 1,000; absent where none waits."},
		{ParentOldest, Gauge, []string{"database", "parent_table"}, "Age of the row at the head of a parent table's queue; absent where none waits."},
		{BacklogUndefined, Gauge, []string{"database", "deletion_table"}, "Parent tables with waiting rows that no definition names."},
		{BacklogGivenUp, Gauge, []string{"database", "deletion_table"}, "Rows tried as often as may be, that are left. Counting stops at 10,000."},
		{UndoBytes, Gauge, []string{"database"}, "Size of the deleted rows that are kept to be restored."},
		{UndoLimit, Gauge, []string{"database"}, "Size from which on no more of them are kept, or deletions wait; absent without a limit."},
		{UndoAge, Gauge, []string{"database"}, "Age of the oldest deletion that is kept."},
		{GroupsAdjourned, Gauge, []string{"database"}, "Groups marked for their deletion whose period is not over. Counting stops at 10,000."},
		{GroupsDestroying, Gauge, []string{"database"}, "Groups whose destruction has begun."},
		{GroupsStuck, Gauge, []string{"database"}, "Groups whose destruction, or what comes before it, has failed 5 times or more."},
		{GroupsUnscheduled, Gauge, []string{"database"}, "Groups with a mark and no schedule, which are never destroyed."},
		{Waiting, Gauge, []string{"kind", "database", "reason"}, "1 for the reason why a job does not work although it might, 0 for all others."},
		{Running, Gauge, []string{"kind", "database"}, "Whether a run is at work, in any process."},
		{Duty, Gauge, []string{"kind", "database"}, "Share of its time that the run at work takes now; absent without a run, or where it steers to no target."},
		{LastSuccess, Gauge, []string{"kind", "database"}, "End of the last run that neither failed nor was kept from all work; 0: none of the last 10,000."},
		{SuccessDue, Gauge, []string{"kind", "database"}, "Third tick of its schedule after that, or after its queue was made: then it is late."},
		{Paused, Gauge, []string{"kind"}, "Whether the kind's queue is paused."},
		{QueueJobs, Gauge, []string{"kind", "state"}, "Jobs in the kind's queue, by state. Counting stops at 10,000."},
		{Workers, Gauge, nil, "Workers that are alive, by their heartbeat."},
		{Listener, Gauge, []string{"kind", "database", "state"}, "1 for the state of this process's listener (listening, polling, disconnected), else 0."},
		{NotifyQueueUsage, Gauge, []string{"database"}, "Share of the server's notification queue that is in use. A full queue fails commits that notify."},
		{ReplicaLag, Gauge, []string{"database", "replica"}, "How far a connected standby's replay is behind. Missing without pg_read_all_stats."},
		{ReplicaLagBytes, Gauge, []string{"database", "replica"}, "Bytes of the write-ahead log that a connected standby has not replayed."},
		{buildInfo, Gauge, []string{"version", "go_version", "river_version"}, "Always 1; the versions are in the labels."},
	}
}
