"""What is published, over HTTP: `app` has the addresses, `following` keeps to the newest publication."""
