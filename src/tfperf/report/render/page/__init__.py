"""A report as one HTML page that needs nothing else: no server, no network, no other file.

`page.py` puts it together: Jinja2 fills `templates/`, and the scripts and the style sheet in `static/` are put into the
page as they are.

ECharts draws the charts: `static/echarts.common.min.js` is `dist/echarts.common.min.js` of the npm package echarts
6.1.0, unchanged, with its licence (Apache 2.0), its notice and the licence of the parts of d3 in it beside it. To renew
it: `npm pack echarts@VERSION`, copy these four files, and put the new SHA-256 into
tests/report/render/page/test_page.py.
"""
