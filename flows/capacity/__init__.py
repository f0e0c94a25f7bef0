"""What a run asks of GPUs before it has run on any: sizes of models (`shapes`), memory (`memory`), speed (`speed`), and the answer to
"does it fit" (`planner`). Formulas with their sources; every assumption is a field that can be changed."""
