"""Where are spans, requests, appraisals and runs kept?  `engine` opens, `writer` writes."""
