"""Results for people and for programs: values first, rendering apart."""
