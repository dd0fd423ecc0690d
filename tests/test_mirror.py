"""Where a module is tested: in the file of its name, or in one that is named here."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "tfperf"
MODULES = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if path.name != "__init__.py"}

TESTED_IN = {
    "__main__.py": "cli/test_main.py",
    # What runs inside the job that is profiled, seen from outside.
    "capture/keras_import_hook.py": "capture/test_script_run.py",
    "capture/script_child.py": "capture/test_script_run.py",
    "capture/script_plan.py": "capture/test_script_run.py",
    "capture/graph_log.py": "capture/test_graph_collector.py",
    "capture/server_methods.py": "capture/test_server.py",
    "capture/step_profile.py": "capture/test_keras_callback.py",
    "capture/tensorflow_session.py": "capture/test_local.py",
    # What one other module is made of.
    "capture/machine.py": "capture/test_doctor.py",
    "trace/thread_flaws.py": "trace/test_soundness.py",
    "run_list.py": "cli/test_analyze.py",
    "sections/view.py": "sections/ops/test_section.py",
    "sections/missing.py": "parallel/test_engine.py",
    "parallel/worker_main.py": "parallel/test_worker_pool.py",
    "capture/tracer_options.py": "capture/test_odd_servers.py",
    "gate/outcome.py": "gate/test_check.py",
    "compare/diff_tables.py": "compare/test_diff_report.py",
    "compare/run_summary.py": "compare/test_summarize.py",
    "sampling/jobs.py": "cli/test_capture.py",
    "timeline/arrows.py": "timeline/test_perfetto.py",
    "timeline/host_timeline.py": "timeline/test_perfetto.py",
    "timeline/track_groups.py": "timeline/test_perfetto.py",
    "tfprof/execution_writer.py": "tfprof/test_profile_writer.py",
    "tfprof/allocations.py": "tfprof/test_timeline.py",
    "tfprof/chrome_events.py": "tfprof/test_timeline.py",
    "tfprof/dtypes.py": "tfprof/test_checkpoint.py",
    "tfprof/graph_timeline.py": "tfprof/test_timeline.py",
    "tfprof/memory_counters.py": "tfprof/test_timeline.py",
    "tfprof/params_source.py": "tfprof/test_params.py",
    "tfprof/tensor_bundle.py": "tfprof/test_checkpoint.py",
    "tfprof/tensor_slices.py": "tfprof/test_checkpoint.py",
    "tfprof/tensors.py": "tfprof/test_checkpoint.py",
    "flamegraph/work.py": "flamegraph/test_answer.py",
    "sections/python/section.py": "sections/python/test_analysis.py",
    "sections/python/tables.py": "sections/python/test_analysis.py",
    "programs/cost_rules.py": "programs/test_cost.py",
    "programs/frames.py": "programs/test_hlo_proto.py",
    "programs/hlo_values.py": "programs/test_hlo_text.py",
    "programs/library_calls.py": "programs/test_cost.py",
    "programs/link.py": "programs/test_hlo_proto.py",
    "programs/messages.py": "programs/test_hlo_proto.py",
    "programs/model.py": "programs/test_hlo_proto.py",
    "sections/hosts/lateness.py": "sections/hosts/test_analysis.py",
    "sections/hosts/section.py": "sections/hosts/test_analysis.py",
    "sections/hosts/step_grid.py": "sections/hosts/test_analysis.py",
    "sections/hosts/straggler.py": "sections/hosts/test_analysis.py",
    "sections/hosts/tables.py": "sections/hosts/test_analysis.py",
    "sections/timeline/drawing.py": "sections/timeline/test_analysis.py",
    "sections/timeline/places.py": "sections/timeline/test_analysis.py",
    "sections/timeline/section.py": "sections/timeline/test_analysis.py",
    "sections/timeline/window.py": "sections/timeline/test_lanes.py",
    "report/step_picture.py": "render/page/test_picture_data.py",
    "trace/flaw.py": "trace/test_soundness.py",
    "trace/pipeline_tree.py": "trace/test_pipelines.py",
    "wire/hlo_schema.py": "wire/test_rewrite.py",
    "wire/stats.py": "wire/test_against_protobuf.py",
    "wire/json_lines.py": "timeline/test_chrome.py",
    "wire/perfetto_schema.py": "timeline/test_perfetto.py",
    # Commands that start TensorFlow, or have their tests with what they show.
    "cli/diff.py": "compare/test_diff_report.py",
    "cli/capture_options.py": "cli/test_capture.py",
    "cli/options.py": "cli/test_main.py",
    "cli/typed.py": "cli/test_capture.py",
    "cli/tfprof_advise.py": "cli/test_tfprof.py",
    "cli/tfprof_options.py": "cli/test_tfprof.py",
    "tfprof/attributes.py": "tfprof/test_options.py",
    "tfprof/outputs.py": "cli/test_tfprof.py",
    "tfprof/report.py": "cli/test_tfprof.py",
    "tfprof/view_columns.py": "cli/test_tfprof.py",
    "cli/run.py": "capture/test_script_run.py",
    # What watches one worker, seen from its server.
    "top/analyst.py": "top/test_watcher.py",
    "top/board.py": "top/test_watcher.py",
    "top/recording.py": "top/test_watcher.py",
    "top/request.py": "top/test_watcher.py",
    "top/sample.py": "top/test_watcher.py",
    "top/watch.py": "top/test_watcher.py",
    "cli/tfprof_params.py": "tfprof/test_params.py",
    # Rules, each tried with a graph that it is about and with a counter-example.
    "linter/catalogue.py": "linter/test_engine.py",
    "linter/gpu_catalogue.py": "linter/test_engine.py",
    "linter/tpu_catalogue.py": "linter/test_engine.py",
    "linter/graph_rules/batch_norms.py": "linter/test_engine.py",
    "linter/graph_rules/convolutions.py": "linter/test_engine.py",
    "linter/graph_rules/fusion.py": "linter/test_engine.py",
    "linter/graph_rules/gpu.py": "linter/test_engine.py",
    "linter/graph_rules/inputs.py": "linter/test_engine.py",
    "linter/graph_rules/pieces.py": "linter/test_engine.py",
    "linter/graph_rules/pooling.py": "linter/test_engine.py",
    "linter/graph_rules/products.py": "linter/test_engine.py",
    "linter/graph_rules/randoms.py": "linter/test_engine.py",
    "linter/graph_rules/reductions.py": "linter/test_engine.py",
    "linter/graph_rules/reshapes.py": "linter/test_engine.py",
    "linter/graph_rules/transposes.py": "linter/test_engine.py",
    "linter/hlo_rules/place.py": "linter/hlo_rules/test_program.py",
    "linter/op_graph.py": "linter/test_graph_file.py",
    "linter/report.py": "cli/test_lint.py",
    "linter/rule.py": "linter/test_engine.py",
    "linter/shared_rules.py": "linter/test_engine.py",
    # What every section uses, and the words of sections whose whole text is a gold file.
    "report/model.py": "render/test_formats.py",
    "sections/registry.py": "sections/test_extending.py",
    "sections/results.py": "test_analysis.py",
    "analyzed_hosts.py": "parallel/test_engine.py",
    "sections/diagnosis/actions.py": "sections/diagnosis/test_diagnose.py",
    "sections/diagnosis/advice.py": "sections/diagnosis/test_diagnose.py",
    "sections/diagnosis/case.py": "sections/diagnosis/test_diagnose.py",
    "sections/diagnosis/cause.py": "sections/diagnosis/test_diagnose.py",
    "sections/diagnosis/device_causes.py": "sections/diagnosis/test_diagnose.py",
    "sections/diagnosis/host_causes.py": "sections/diagnosis/test_diagnose.py",
    "sections/diagnosis/input_causes.py": "sections/diagnosis/test_diagnose.py",
    "sections/diagnosis/memory_actions.py": "sections/diagnosis/test_diagnose.py",
    "sections/diagnosis/tables.py": "test_gold.py",
    "sections/batch/tables.py": "sections/batch/test_section.py",
    "sections/host_threads/section.py": "sections/host_threads/test_analysis.py",
    "sections/host_threads/tables.py": "sections/host_threads/test_analysis.py",
    "sections/roofline/tables.py": "sections/roofline/test_section.py",
    "sections/xla/tables.py": "sections/xla/test_section.py",
    "sections/xla/work_columns.py": "sections/xla/test_section.py",
    "sections/overview/tables.py": "sections/overview/test_section.py",
    # Words, which `tfperf explain` and pages show.
    "explain/glossary.py": "test_docs.py",
    "sections/diagnosis/meanings.py": "explain/test_entries.py",
    "trace/step_sources.py": "test_docs.py",
    # Declarations without a rule.
    "errors.py": "test_exports.py",
    "keras.py": "capture/test_keras_callback.py",
}


def test_a_module_has_a_test_file_of_its_name_or_is_named_here() -> None:
    names = {module: Path(module).with_name(f"test_{Path(module).name}") for module in MODULES}
    with_namesake = {module for module, name in names.items() if (TESTS / name).exists()}
    assert MODULES - with_namesake == TESTED_IN.keys()


def test_the_files_that_are_named_exist() -> None:
    assert [name for name in TESTED_IN.values() if not (TESTS / name).exists()] == []
