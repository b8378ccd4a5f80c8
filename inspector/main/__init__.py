"""The main screen: its panels, its layout, its keys and its dialogs. It knows no tool by name."""
