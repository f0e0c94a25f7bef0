"""Engine of a server that speaks OpenAI's completions protocol and holds the policy already: for evaluation."""
