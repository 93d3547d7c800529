"""Of `benchmarks.accuracy.libraries`: how other libraries' models are fitted and searched, and our own on the same split."""
