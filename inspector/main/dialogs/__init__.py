"""The dialogs of the main screen: prompt, model, facts, jump, help."""
