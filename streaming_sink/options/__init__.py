"""The options of a sink and of a buffer zone: values that check themselves when they are made."""
